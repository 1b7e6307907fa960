package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errImplausible marks a success answer without the resource in it: a broken proxy or
// service must not look as if someone had emptied it.
var errImplausible = errors.New("implausible answer")

// shape describes a believable state, by the API's document.
type shape struct {
	opens  byte            // '{' or '['
	fields map[string]byte // members with how their JSON opens; all must be there
	elem   byte            // how each element of an array opens
}

var shapes = map[Kind]shape{
	Project:              {opens: '{', fields: map[string]byte{"project_slug": '"', "name": '"'}},
	RBACPolicy:           {opens: '{', fields: map[string]byte{"custom_roles": '[', "custom_resources": '[', "custom_scopes": '['}},
	EmailTemplates:       {opens: '[', elem: '{'},
	TrustedTokenProfiles: {opens: '[', elem: '{'},
	PasswordStrength:     {opens: '{', fields: map[string]byte{"validation_policy": '"'}},
	SMSCountryCodes:      {opens: '[', elem: '"'},
}

// plausible checks raw, canonical JSON, against its kind's shape.
func plausible(kind Kind, raw json.RawMessage) error {
	s := shapes[kind]
	if !opens(raw, s.opens) {
		return fmt.Errorf("%w: it is not %s", errImplausible, kindOf(s.opens))
	}
	if s.opens == '[' {
		return s.elements(raw)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fmt.Errorf("%w: %w", errImplausible, err)
	}
	for name, want := range s.fields {
		if !opens(members[name], want) {
			return fmt.Errorf("%w: %s is not %s", errImplausible, name, kindOf(want))
		}
	}
	return nil
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
