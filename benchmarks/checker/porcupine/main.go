// Porcupine as a yardstick: reads histories from a file, then checks the one whose number comes in on stdin.
//
// A request is `<number> <limit in ms>`; the answer `<ok|illegal|unknown> <nanoseconds> <bytes allocated>`. One thread.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/anishathalye/porcupine"
)

// input is a kind of operation; numbers for registers, text for key-value stores.
type input struct {
	F          string `json:"f"`
	A, B, Seen int
	Text       string
	Unknown    bool
}

type operation struct {
	Kind      int
	Call, Ret int64
	Unknown   bool
}

type history struct {
	Model string
	Kinds []input
	Ops   []operation
}

var register = porcupine.Model{
	Init: func() interface{} { return -1 },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		now, op := state.(int), in.(*input)
		switch op.F {
		case "read":
			return now == op.Seen, now
		case "write":
			return true, op.A
		case "cas-refused":
			return now != op.A, now
		}
		if now == op.A {
			return true, op.B
		}
		// An unknown swap may never happen: then it does no harm at the end of time.
		return out.(bool), now
	},
}

var kv = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		now, op := state.(string), in.(*input)
		switch op.F {
		case "get":
			return now == op.Text, now
		case "put":
			return true, op.Text
		}
		return true, now + op.Text
	},
}

func main() {
	runtime.GOMAXPROCS(1)
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	var histories []history
	if err := json.NewDecoder(bufio.NewReader(file)).Decode(&histories); err != nil {
		panic(err)
	}
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var number, limit int
		fmt.Sscan(requests.Text(), &number, &limit)
		chosen := histories[number]
		ops := make([]porcupine.Operation, len(chosen.Ops))
		for i, op := range chosen.Ops {
			ops[i] = porcupine.Operation{ClientId: i, Input: &chosen.Kinds[op.Kind], Call: op.Call, Output: op.Unknown, Return: op.Ret}
		}
		model := register
		if chosen.Model == "kv" {
			model = kv
		}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		result := porcupine.CheckOperationsTimeout(model, ops, time.Duration(limit)*time.Millisecond)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		word := map[porcupine.CheckResult]string{porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown"}[result]
		fmt.Println(word, took.Nanoseconds(), after.TotalAlloc-before.TotalAlloc)
	}
}
