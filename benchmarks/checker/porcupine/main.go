// SPDX-License-Identifier: Apache-2.0
// Porcupine as a yardstick: reads histories from a file, then checks the one whose number comes in on stdin.
//
// A request is `<number> <limit in ms> <1: ask for memory>`; the answer `<ok|illegal|unknown> <nanoseconds of processor
// time> <MiB at most>`. One thread; each allocation costs time, because all free memory is returned before. Operations carry a key; with several keys, Porcupine partitions.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"
)

// input is a kind of operation; numbers for registers, text for key-value stores.
type input struct {
	F          string
	A, B, Seen int
	Text       string
}

type operation struct {
	Kind, Key int
	Call, Ret int64
	Unknown   bool
}

// asked is what the models see.
type asked struct {
	*input
	key int
}

type history struct {
	Model string
	Kinds []input
	Ops   []operation
}

func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	keys := map[int]int{}
	var found [][]porcupine.Operation
	for _, op := range ops {
		key := op.Input.(asked).key
		at, ok := keys[key]
		if !ok {
			at = len(found)
			keys[key] = at
			found = append(found, nil)
		}
		found[at] = append(found[at], op)
	}
	return found
}

var register = porcupine.Model{
	Partition: byKey,
	Init:      func() interface{} { return -1 },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		now, op := state.(int), in.(asked)
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
	Partition: byKey,
	Init:      func() interface{} { return "" },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		now, op := state.(string), in.(asked)
		switch op.F {
		case "get":
			return now == op.Text, now
		case "put":
			return true, op.Text
		}
		return true, now + op.Text
	},
}

// processorTime of this process, in ns (CLOCK_PROCESS_CPUTIME_ID).
func processorTime() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 2, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// peak is the most memory that was resident since `forget`, in MiB; -1 where the kernel does not tell.
func peak() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	for _, line := range strings.Split(string(status), "\n") {
		var size int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &size); n == 1 {
			return size / 1024
		}
	}
	return -1
}

func forget() {
	debug.FreeOSMemory()
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
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
		var number, limit, memory int
		fmt.Sscan(requests.Text(), &number, &limit, &memory)
		chosen := histories[number]
		ops := make([]porcupine.Operation, len(chosen.Ops))
		for i, op := range chosen.Ops {
			in := asked{&chosen.Kinds[op.Kind], op.Key}
			ops[i] = porcupine.Operation{ClientId: i, Input: in, Call: op.Call, Output: op.Unknown, Return: op.Ret}
		}
		model := register
		if chosen.Model == "kv" {
			model = kv
		}
		if memory == 1 {
			forget()
		} else {
			runtime.GC()
		}
		began := processorTime()
		result := porcupine.CheckOperationsTimeout(model, ops, time.Duration(limit)*time.Millisecond)
		took := processorTime() - began
		word := map[porcupine.CheckResult]string{porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown"}[result]
		fmt.Println(word, took, peak())
	}
}
