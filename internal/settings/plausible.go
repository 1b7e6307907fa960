package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errImplausible marks a success answer without the resource in it: a broken proxy or
// service must not look as if someone had emptied it.
var errImplausible = errors.New("implausible answer")

// shape describes a believable state, by the API's document.
type shape struct {
	opens  byte            // '{' or '['
	fields map[string]byte // members with how their JSON opens; all must be there
	// lists are members that are lists, by their names, and branded those by the end of
	// their names. They may be null or left out, but not all of them.
	lists   []string
	branded []string
	elem    byte // how each element of an array opens
}

var shapes = map[Kind]shape{
	Project: {opens: '{', fields: map[string]byte{"project_slug": '"', "name": '"'}},
	RBACPolicy: {
		opens: '{', lists: []string{"custom_roles", "custom_resources", "custom_scopes"},
		branded: []string{"_resources", "_member", "_admin", "_user"},
	},
	EmailTemplates:       {opens: '[', elem: '{'},
	TrustedTokenProfiles: {opens: '[', elem: '{'},
	PasswordStrength:     {opens: '{', fields: map[string]byte{"validation_policy": '"'}},
	SMSCountryCodes:      {opens: '[', elem: '"'},
}

// plausible checks raw, canonical JSON, against its kind's shape, and notes what it assumes.
//
// A list that is null or left out is an empty one: servers write it in either way, and a
// setting that counted as unread would be unwatched for as long as that lasts. But an
// answer without anything of the resource is implausible, and changes nothing: an empty
// object in place of a policy, null in place of an object, or a member of another form. A
// list that is the whole resource is judged by the client (management.Answer.Note).
func plausible(kind Kind, raw json.RawMessage) (notes []string, err error) {
	s := shapes[kind]
	if !opens(raw, s.opens) {
		return nil, fmt.Errorf("%w: it is not %s", errImplausible, kindOf(s.opens))
	}
	if s.opens == '[' {
		return nil, s.elements(raw)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("%w: %w", errImplausible, err)
	}
	for name, want := range s.fields {
		if !opens(members[name], want) {
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf(want))
		}
	}
	return s.members(members)
}

// members checks the lists of an object.
func (s shape) members(members map[string]json.RawMessage) (notes []string, err error) {
	known := len(s.lists) == 0
	for _, name := range s.lists {
		switch raw, ok := members[name]; {
		case !ok:
			notes = append(notes, "the API's answer had no "+name+": it is taken for an empty list")
		case string(raw) == null:
			notes, known = append(notes, "the API's answer had null for "+name+": it is taken for an empty list"), true
		case !opens(raw, '['):
			return nil, fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf('['))
		default:
			known = true
		}
	}
	for name, raw := range members {
		if slices.Contains(s.lists, name) || !slices.ContainsFunc(s.branded, func(end string) bool { return strings.HasSuffix(name, end) }) {
			continue
		}
		known = true
		if string(raw) == null {
			notes = append(notes, "the API's answer had null for "+name+": it is taken for an empty one")
		}
	}
	if !known {
		return nil, fmt.Errorf("%w: it has nothing of what the document names", errImplausible)
	}
	slices.Sort(notes)
	return notes, nil
}

func (s shape) elements(raw json.RawMessage) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return fmt.Errorf("%w: %w", errImplausible, err)
	}
	for i, element := range elements {
		if !opens(element, s.elem) {
			return fmt.Errorf("%w: element %d is not %s", errImplausible, i, kindOf(s.elem))
		}
	}
	return nil
}

func opens(raw json.RawMessage, with byte) bool { return bytes.HasPrefix(raw, []byte{with}) }

func kindOf(opens byte) string {
	switch opens {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "a string"
}
