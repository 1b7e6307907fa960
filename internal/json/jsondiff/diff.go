// Package jsondiff compares two JSON states by meaning: a [Schema] says which arrays are
// sets, and which are lists whose elements have a key. It also has the canonical form of
// a state. Everything here is a pure function.
package jsondiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Change is one difference between two states.
type Change struct {
	// Path is a JSON pointer (RFC 6901), "" for the whole state. An element of a keyed
	// list is named by its key, /custom_roles/role_id=editor/description, and an element
	// of a set by the set's own path.
	Path string `json:"path"`
	// Old and New are the values on either side; nil where there is none.
	Old json.RawMessage `json:"old,omitempty"`
	New json.RawMessage `json:"new,omitempty"`
}

func (c Change) String() string {
	switch {
	case c.Old == nil:
		return fmt.Sprintf("%s: + %s", c.Path, c.New)
	case c.New == nil:
		return fmt.Sprintf("%s: - %s", c.Path, c.Old)
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, c.Old, c.New)
}

// Diff returns the differences in meaning between two states, ordered by path. The
// schema may be nil. Elements of a set are counted: two equal elements differ from one.
// Both states must be JSON fit for [Canonical].
func Diff(s *Schema, before, after json.RawMessage) ([]Change, error) {
	a, err := Decode(before)
	if err != nil {
		return nil, fmt.Errorf("read the state before: %w", err)
	}
	b, err := Decode(after)
	if err != nil {
		return nil, fmt.Errorf("read the state after: %w", err)
	}
	return DiffValues(s, a, b), nil
}

// DiffValues is [Diff] for two states that [Decode] has read.
func DiffValues(s *Schema, a, b any) []Change {
	d := differ{}
	d.value(s, a, b)
	return d.changes
}

// Decode reads a state. Numbers become a [json.Number] with the digits of the canonical
// form, so equal numbers are equal strings. Errors are those of [Canonical].
func Decode(raw json.RawMessage) (any, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return v, nil
}

// differ walks two values side by side.
type differ struct {
	path    []string // to the values it compares now
	changes []Change
}

func (d *differ) at(step string, s *Schema, a, b any) {
	d.path = append(d.path, step)
	d.value(s, a, b)
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) value(s *Schema, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			d.object(s, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			d.array(s, x, y)
			return
		}
	case nil, bool, string, json.Number:
		switch b.(type) {
		case nil, bool, string, json.Number:
			if a == b {
				return
			}
		}
	}
	d.changed(Encode(a), Encode(b))
}

func (d *differ) changed(old, now json.RawMessage) {
	d.changes = append(d.changes, Change{Path: pointer(d.path), Old: old, New: now})
}

// pointer joins escaped steps, "" for none.
func pointer(steps []string) string {
	if len(steps) == 0 {
		return ""
	}
	return "/" + strings.Join(steps, "/")
}

func (d *differ) oneSided(step string, old, now json.RawMessage) {
	d.path = append(d.path, step)
	d.changed(old, now)
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) object(s *Schema, a, b map[string]any) {
	for _, name := range union(a, b) {
		x, inA := a[name]
		y, inB := b[name]
		switch step := escape(name); {
		case !inB:
			d.oneSided(step, Encode(x), nil)
		case !inA:
			d.oneSided(step, nil, Encode(y))
		default:
			d.at(step, s.Member(name), x, y)
		}
	}
}

func (d *differ) array(s *Schema, a, b []any) {
	switch {
	case s != nil && s.Set:
		d.set(a, b)
		return
	case s != nil && s.Key != "":
		x, okA := byKey(a, s.Key)
		y, okB := byKey(b, s.Key)
		if okA && okB {
			d.keyed(s, x, y)
			return
		}
	}
	for i := range max(len(a), len(b)) {
		switch step := strconv.Itoa(i); {
		case i >= len(b):
			d.oneSided(step, Encode(a[i]), nil)
		case i >= len(a):
			d.oneSided(step, nil, Encode(b[i]))
		default:
			d.at(step, s.Element(), a[i], b[i])
		}
	}
}

// set compares two multisets.
func (d *differ) set(a, b []any) {
	count := map[string]int{}
	for _, x := range a {
		count[string(Encode(x))]--
	}
	for _, y := range b {
		count[string(Encode(y))]++
	}
	for _, element := range slices.Sorted(maps.Keys(count)) {
		for n := count[element]; n < 0; n++ {
			d.changed(json.RawMessage(element), nil)
		}
		for n := count[element]; n > 0; n-- {
			d.changed(nil, json.RawMessage(element))
		}
	}
}

func (d *differ) keyed(s *Schema, a, b map[string]any) {
	for _, id := range union(a, b) {
		x, inA := a[id]
		y, inB := b[id]
		switch step := s.Key + "=" + escape(id); {
		case !inB:
			d.oneSided(step, Encode(x), nil)
		case !inA:
			d.oneSided(step, nil, Encode(y))
		default:
			d.at(step, s.Elem, x, y)
		}
	}
}

// byKey indexes a list of objects by their key. It fails where an object has no key, or
// the key of another: then the list is compared by its order.
func byKey(list []any, key string) (map[string]any, bool) {
	m := make(map[string]any, len(list))
	for _, element := range list {
		object, _ := element.(map[string]any)
		id, ok := object[key].(string)
		if _, twice := m[id]; !ok || twice {
			return nil, false
		}
		m[id] = element
	}
	return m, true
}

func union(a, b map[string]any) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// escape writes a member's name as a step of a JSON pointer.
func escape(name string) string { return escaper.Replace(name) }

// Encode gives a decoded value's JSON again. Members come out sorted, so equal values
// have equal bytes.
func Encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil { // never: a decoder made v
		return json.RawMessage("null")
	}
	return raw
}
