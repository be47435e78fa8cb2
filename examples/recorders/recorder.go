// SPDX-License-Identifier: Apache-2.0

// Package recorder writes a history for `harness check`. An operation that ends without an outcome counts as unknown.
//
//	client := r.Process()                            // r, err := recorder.New(path); a client for each goroutine
//	op := client.Op("write", "x", 3); defer op.End() // then op.Ok(result), op.Fail(reason) or op.Info(reason)
package recorder

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

type Recorder struct {
	sync.Mutex
	file  *os.File
	start time.Time
	count atomic.Int64
}
type Process struct {
	*Recorder
	number int64
}
type Op struct {
	*Process
	f          string
	key, value any
	open       bool
}

func New(path string) (*Recorder, error) {
	file, err := os.Create(path)
	return &Recorder{file: file, start: time.Now()}, err
}
func (r *Recorder) Close() error      { return r.file.Close() }
func (r *Recorder) Process() *Process { return &Process{r, r.count.Add(1)} }
func (p *Process) Op(f string, key, value any) *Op {
	return (&Op{p, f, key, value, true}).event("invoke", value, nil)
}
func (o *Op) Ok(result any)  { o.event("ok", result, nil) }
func (o *Op) Fail(error any) { o.event("fail", o.value, fmt.Sprint(error)) } // it certainly never happens
func (o *Op) Info(error any) { o.event("info", o.value, fmt.Sprint(error)) }
func (o *Op) End()           { o.Info("no outcome was recorded") }
func (o *Op) event(kind string, value, why any) *Op {
	o.Lock()
	defer o.Unlock()
	if !o.open { // it has an outcome, and the first one counts
		return o
	} else if o.open = kind == "invoke"; json.NewEncoder(o.file).Encode(map[string]any{
		"process": o.number, "type": kind, "f": o.f, "key": o.key, "value": value, "error": why, "time": time.Since(o.start)}) != nil {
		panic("an event cannot be recorded")
	} else if kind == "info" {
		o.number = o.count.Add(1)
	}
	return o
}
