package jsontext

import (
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
	// Old and New are the values on either side; nil if there is none.
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

// Changes are the differences between two states, ordered by path. The list is empty only if
// there are none.
type Changes struct {
	List []Change
	// More counts the changes beyond the limits of the list.
	More int
}

// The limits of the list of changes. Without them, a long name with many changes below it would
// take many times its own memory.
const (
	maxChanges = 10_000
	maxPaths   = 4 << 20 // bytes
)

// Diff returns the differences in meaning between two states. The schema may be nil. Elements
// of a set are counted, so two equal elements differ from one. Both states must be JSON that
// [Canonical] accepts.
func Diff(s *Schema, before, after json.RawMessage) (Changes, error) {
	a, err := Decode(before)
	if err != nil {
		return Changes{}, fmt.Errorf("read the state before: %w", err)
	}
	b, err := Decode(after)
	if err != nil {
		return Changes{}, fmt.Errorf("read the state after: %w", err)
	}
	return DiffValues(s, a, b), nil
}

// DiffValues is [Diff] for two states that [Decode] has read.
func DiffValues(s *Schema, a, b any) Changes {
	d := differ{}
	d.value(s, a, b)
	return d.changes
}

// differ walks through two values at the same time.
type differ struct {
	path    []string // to the values that it compares now
	length  int      // of path, in bytes
	paths   int      // bytes of all paths listed
	changes Changes
}

// absent is the value of a side that has none.
type absent struct{}

// of returns the value of a name in one of the sides.
func of(side map[string]any, name string) any {
	if value, is := side[name]; is {
		return value
	}
	return absent{}
}

// step compares the values one step below the current path, of which one may be absent.
func (d *differ) step(step string, s *Schema, a, b any) {
	d.path = append(d.path, step)
	d.length += len(step) + len("/")
	d.value(s, a, b)
	d.path = d.path[:len(d.path)-1]
	d.length -= len(step) + len("/")
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
	d.changed(a, b)
}

// changed lists a change of the value at the current path, if there is room.
func (d *differ) changed(a, b any) {
	first := len(d.changes.List) == 0
	if d.paths += d.length; !first && (d.paths > maxPaths || len(d.changes.List) == maxChanges) {
		d.paths = maxPaths // this one and all later ones are only counted
		d.changes.More++
		return
	}
	d.changes.List = append(d.changes.List, Change{Path: pointer(d.path), Old: side(a), New: side(b)})
}

func side(value any) json.RawMessage {
	if value == (absent{}) {
		return nil
	}
	return Encode(value)
}

// pointer joins escaped steps, "" for none.
func pointer(steps []string) string {
	if len(steps) == 0 {
		return ""
	}
	return "/" + strings.Join(steps, "/")
}

func (d *differ) object(s *Schema, a, b map[string]any) {
	for _, name := range union(a, b) {
		d.step(Escape(name), s.Member(name), of(a, name), of(b, name))
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
		d.step(strconv.Itoa(i), s.Element(), nth(a, i), nth(b, i))
	}
}

func nth(list []any, i int) any {
	if i >= len(list) {
		return absent{}
	}
	return list[i]
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
			d.changed(json.RawMessage(element), absent{})
		}
		for n := count[element]; n > 0; n-- {
			d.changed(absent{}, json.RawMessage(element))
		}
	}
}

func (d *differ) keyed(s *Schema, a, b map[string]any) {
	for _, id := range union(a, b) {
		d.step(s.Key+"="+Escape(id), s.Elem, of(a, id), of(b, id))
	}
}

// byKey indexes a list of objects by their key. It fails if an object has no key, or the same
// key as another; the list is then compared by its order.
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

// Escape writes a member's name as a step of a JSON pointer.
func Escape(name string) string { return escaper.Replace(name) }

// Schema names the arrays of a JSON value that have no fixed order. The order of an array
// counts unless the schema says otherwise.
type Schema struct {
	// Text marks a string or null, for those who hold a value against the schema. It does not
	// matter to the differences of two values.
	Text bool
	// Set marks an array whose order means nothing.
	Set bool
	// Key is the member that names each object of an array.
	Key string
	// Elem is the schema of an array's elements.
	Elem *Schema
	// Members are the schemas of an object's members, by name, and Suffixes those of members
	// whose names end with the key.
	Members, Suffixes map[string]*Schema
}

// Member returns the schema of an object's member, or nil if there is none.
func (s *Schema) Member(name string) *Schema {
	if s == nil {
		return nil
	}
	if known, ok := s.Members[name]; ok {
		return known
	}
	for end, known := range s.Suffixes {
		if strings.HasSuffix(name, end) {
			return known
		}
	}
	return nil
}

// Element returns the schema of an array's elements, or nil if there is none.
func (s *Schema) Element() *Schema {
	if s == nil {
		return nil
	}
	return s.Elem
}
