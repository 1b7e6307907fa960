package meaning

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// objects gives the objects of an array, and skips other elements.
func objects(v any) []map[string]any {
	elements, _ := v.([]any)
	out := make([]map[string]any, 0, len(elements))
	for _, element := range elements {
		if object, ok := element.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// stringsOf gives the strings of an array, and skips other elements.
func stringsOf(v any) []string {
	elements, _ := v.([]any)
	out := make([]string, 0, len(elements))
	for _, element := range elements {
		if s, ok := element.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// memberOf follows names into objects, nil where there is nothing.
func memberOf(v any, names ...string) any {
	for _, name := range names {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// textOf is a string member, else "".
func textOf(v any, names ...string) string {
	s, _ := memberOf(v, names...).(string)
	return s
}

// raw is a value's JSON; nil for a missing value.
func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	return jsondiff.Encode(v)
}

// only is the JSON of a text if there is one only.
func only(texts []string) json.RawMessage {
	if len(texts) != 1 {
		return nil
	}
	return jsondiff.Encode(texts[0])
}

// byKey indexes objects by a member. The second of one id, and those after it, have "#2"
// and so on after it. Objects without an id are skipped.
func byKey(v any, key string) map[string]map[string]any {
	m, seen := map[string]map[string]any{}, map[string]int{}
	for _, o := range objects(v) {
		id, ok := o[key].(string)
		if !ok {
			continue
		}
		unique := id
		for m[unique] != nil {
			seen[id]++
			unique = id + "#" + strconv.Itoa(seen[id]+1)
		}
		m[unique] = o
	}
	return m
}
