package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// Change is one difference between two states.
type Change struct {
	// Path is a JSON pointer (RFC 6901) in which an element of a keyed list is
	// named by its key: /custom_roles/role_id=editor/description. An element
	// of a set has the set's own path.
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

// Compare returns what differs in meaning between two states of a kind, in the
// order of paths. Arrays that are sets, and lists whose elements have a key, do
// not differ when reordered; elements that occur twice count twice. Of all
// other arrays nothing is known, so their order counts. It is an error where
// either state is not canonicable JSON, see [audit.Canonical].
func Compare(kind Kind, before, after json.RawMessage) ([]Change, error) {
	a, err := decode(before)
	if err != nil {
		return nil, fmt.Errorf("read the state before: %w", err)
	}
	b, err := decode(after)
	if err != nil {
		return nil, fmt.Errorf("read the state after: %w", err)
	}
	d := differ{}
	d.value(schemas[kind], a, b)
	return d.changes, nil
}

// decode reads JSON so that equal numbers are equal strings, its depth bounded.
func decode(raw json.RawMessage) (any, error) {
	canonical, err := audit.Canonical(raw)
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

// differ walks two values; path leads to where it is.
type differ struct {
	path    []string
	changes []Change
}

func (d *differ) at(step string, s *schema, a, b any) {
	d.path = append(d.path, step)
	d.value(s, a, b)
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) value(s *schema, a, b any) {
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
	d.changed(encode(a), encode(b))
}

func (d *differ) changed(old, now json.RawMessage) {
	path := "/"
	if len(d.path) > 0 {
		path += strings.Join(d.path, "/")
	}
	d.changes = append(d.changes, Change{Path: path, Old: old, New: now})
}

func (d *differ) oneSided(step string, old, now json.RawMessage) {
	d.path = append(d.path, step)
	d.changed(old, now)
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) object(s *schema, a, b map[string]any) {
	for _, name := range union(a, b) {
		x, inA := a[name]
		y, inB := b[name]
		switch step := escape(name); {
		case !inB:
			d.oneSided(step, encode(x), nil)
		case !inA:
			d.oneSided(step, nil, encode(y))
		default:
			d.at(step, s.member(name), x, y)
		}
	}
}

func (d *differ) array(s *schema, a, b []any) {
	switch {
	case s != nil && s.set:
		d.set(a, b)
		return
	case s != nil && s.key != "":
		x, okA := byKey(a, s.key)
		y, okB := byKey(b, s.key)
		if okA && okB {
			d.keyed(s, x, y)
			return
		}
	}
	for i := range max(len(a), len(b)) {
		switch step := strconv.Itoa(i); {
		case i >= len(b):
			d.oneSided(step, encode(a[i]), nil)
		case i >= len(a):
			d.oneSided(step, nil, encode(b[i]))
		default:
			d.at(step, s.element(), a[i], b[i])
		}
	}
}

// set compares as multisets: an element that comes twice is not the same as
// one that comes once.
func (d *differ) set(a, b []any) {
	count := map[string]int{}
	for _, x := range a {
		count[string(encode(x))]--
	}
	for _, y := range b {
		count[string(encode(y))]++
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

func (d *differ) keyed(s *schema, a, b map[string]any) {
	for _, id := range union(a, b) {
		x, inA := a[id]
		y, inB := b[id]
		switch step := s.key + "=" + escape(id); {
		case !inB:
			d.oneSided(step, encode(x), nil)
		case !inA:
			d.oneSided(step, nil, encode(y))
		default:
			d.at(step, s.elem, x, y)
		}
	}
}

// byKey indexes a list of objects; it fails where the key names not each of
// them, and once: then the list's order is all there is to go by.
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

func escape(step string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
}

// encode gives a decoded value's JSON again. Map keys come out sorted, so equal
// values have equal bytes.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil { // never: v came out of a decoder
		return json.RawMessage("null")
	}
	return raw
}
