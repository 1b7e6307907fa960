package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// errImplausible marks a success answer without the resource in it: a broken proxy or
// service must not look as if someone had emptied it.
var errImplausible = errors.New("implausible answer")

// plausible holds a decoded state against its kind's shape, and notes what it assumes.
//
// A list that is null or left out is an empty one: servers write it in either way, and a
// setting that counted as unread would be unwatched for as long as that lasts. But an
// answer without anything of the resource is implausible, and changes nothing: an empty
// object in place of a policy, null in place of an object, or a member of another form. A
// list that is the whole resource is judged by the client (management.Answer.Note).
func plausible(s kinds.Shape, state any) (notes []string, err error) {
	switch {
	case !opens(state, s.Opens):
		return nil, fmt.Errorf("%w: it is not %s", errImplausible, kindOf(s.Opens))
	case s.Opens == '[':
		return nil, elements(s, state)
	}
	members, _ := state.(map[string]any)
	for name, want := range s.Fields {
		if !opens(members[name], want) {
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf(want))
		}
	}
	return lists(s, members)
}

// lists checks the lists of an object.
func lists(s kinds.Shape, members map[string]any) (notes []string, err error) {
	known := len(s.Lists) == 0
	for _, name := range s.Lists {
		switch v, ok := members[name]; {
		case !ok:
			notes = append(notes, "the API's answer had no "+name+": it is taken for an empty list")
		case v == nil:
			notes, known = append(notes, "the API's answer had null for "+name+": it is taken for an empty list"), true
		case !opens(v, '['):
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf('['))
		default:
			if err := elements(kinds.Shape{Elem: '{'}, v); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			known = true
		}
	}
	for name, v := range members {
		switch want, branded := brandOf(s, name); {
		case !branded:
			continue
		case v == nil:
			notes = append(notes, "the API's answer had null for "+name+": it is taken for an empty one")
		case !opens(v, want):
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf(want))
		}
		known = true
	}
	if !known {
		return nil, fmt.Errorf("%w: it has nothing of what the document names", errImplausible)
	}
	slices.Sort(notes)
	return notes, nil
}

// brandOf is how the JSON of a branded member begins; false for another member.
func brandOf(s kinds.Shape, name string) (byte, bool) {
	for end, opens := range s.Branded {
		if strings.HasSuffix(name, end) && !slices.Contains(s.Lists, name) {
			return opens, true
		}
	}
	return 0, false
}

func elements(s kinds.Shape, state any) error {
	list, _ := state.([]any)
	for i, element := range list {
		if !opens(element, s.Elem) {
			return fmt.Errorf("%w: element %d is not %s", errImplausible, i, kindOf(s.Elem))
		}
		if members, _ := element.(map[string]any); s.Key != "" && !opens(members[s.Key], '"') {
			return fmt.Errorf("%w: element %d has no %s", errImplausible, i, s.Key)
		}
	}
	return nil
}

// opens reports whether a value's JSON begins with a byte.
func opens(v any, with byte) bool {
	switch v.(type) {
	case map[string]any:
		return with == '{'
	case []any:
		return with == '['
	case string:
		return with == '"'
	}
	return false
}

func kindOf(opens byte) string {
	switch opens {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "a string"
}
