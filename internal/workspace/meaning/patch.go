package meaning

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// Operation is one operation of a JSON Patch (RFC 6902). Path is a JSON pointer; indexes
// are those of the state as the operations before have left it.
type Operation struct {
	Op    string          `json:"op"` // "add", "remove" or "replace"
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// maxPatchDepth is how deep a patch goes; a deeper difference replaces the value there.
// It bounds how often two equal values are compared.
const maxPatchDepth = 32

// patch returns the operations to make one state into the other. If they would be larger
// than the state after, it replaces the whole.
func patch(a, b jsondiff.State) []Operation {
	switch {
	case a.JSON == nil && b.JSON == nil:
		return nil
	case b.JSON == nil:
		return []Operation{{Op: "remove"}}
	}
	whole := jsondiff.Encode(b.Value)
	if a.JSON == nil {
		return []Operation{{Op: "add", Value: whole}}
	}
	p := patcher{left: len(whole) + 256}
	p.value(a.Value, b.Value)
	if p.left < 0 {
		return []Operation{{Op: "replace", Value: whole}}
	}
	return p.operations
}

type patcher struct {
	path       []string // escaped steps to the values it compares now
	operations []Operation
	left       int // bytes until replacing the whole is shorter
}

func (p *patcher) at(step string, a, b any) {
	p.path = append(p.path, step)
	p.value(a, b)
	p.path = p.path[:len(p.path)-1]
}

func (p *patcher) value(a, b any) {
	if p.left < 0 {
		return
	}
	if len(p.path) < maxPatchDepth {
		if x, ok := a.(map[string]any); ok {
			if y, ok := b.(map[string]any); ok {
				p.object(x, y)
				return
			}
		}
		if x, ok := a.([]any); ok {
			if y, ok := b.([]any); ok {
				p.array(x, y)
				return
			}
		}
	}
	if !reflect.DeepEqual(a, b) {
		p.emit("replace", "", jsondiff.Encode(b))
	}
}

// emit adds an operation at a step below the current path; "" is the path itself.
func (p *patcher) emit(op, step string, value json.RawMessage) {
	size := len(op) + len(step) + len(value)
	for _, s := range p.path {
		size += len(s) + 1
	}
	if p.left -= size; p.left < 0 {
		return
	}
	path := step
	if len(p.path) > 0 {
		path = "/" + strings.Join(p.path, "/") + step
	}
	p.operations = append(p.operations, Operation{op, path, value})
}

func (p *patcher) object(a, b map[string]any) {
	for _, name := range sortedUnion(a, b) {
		x, inA := a[name]
		y, inB := b[name]
		step := jsondiff.Escape(name)
		switch {
		case !inB:
			p.emit("remove", "/"+step, nil)
		case !inA:
			p.emit("add", "/"+step, jsondiff.Encode(y))
		default:
			p.at(step, x, y)
		}
	}
}

// array leaves equal elements at both ends alone, and changes those between in place.
func (p *patcher) array(a, b []any) {
	start := 0
	for start < min(len(a), len(b)) && reflect.DeepEqual(a[start], b[start]) {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && reflect.DeepEqual(a[endA-1], b[endB-1]) {
		endA, endB = endA-1, endB-1
	}
	both := min(endA, endB)
	for i := start; i < both && p.left >= 0; i++ {
		p.at(strconv.Itoa(i), a[i], b[i])
	}
	for i := endA; i > both && p.left >= 0; i-- {
		p.emit("remove", "/"+strconv.Itoa(i-1), nil)
	}
	for i := both; i < endB && p.left >= 0; i++ {
		p.emit("add", "/"+strconv.Itoa(i), jsondiff.Encode(b[i]))
	}
}
