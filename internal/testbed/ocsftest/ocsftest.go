// Package ocsftest holds objects against the published schema of OCSF, for tests.
//
// Each class is checked against the nearest published version, and where it can be, twice:
//
//	2004              1.9.0, and 1.8.0
//	0, 3002, 6003     1.8.0, and 1.8.0 with the objects of 1.9.0
//	3004              the same, with updated_entity of 1.9.0
//	3008              the attributes of 1.8.0's class 3004 and those that 1.9.0 has for
//	                  this class, with the objects of 1.9.0
//
// schema/README.md has the sources. An attribute missing from the schema is an error.
package ocsftest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema/published.json
var published []byte

//go:embed schema/additions.json
var additions []byte

// classes are the names of the classes by number.
var classes = map[int]string{
	0: "base_event", 2004: "detection_finding", 3002: "authentication", 3004: "entity_management",
	3008: "role_management", 6003: "api_activity",
}

// Validate returns an error if the object is not one of a known class, or is unlike the
// schema. It checks type_uid too; the schema only lists it.
func Validate(object []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(object))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	var ids struct {
		Class    *int `json:"class_uid"`
		Category int  `json:"category_uid"`
		Activity int  `json:"activity_id"`
		Type     int  `json:"type_uid"`
	}
	if err := json.Unmarshal(object, &ids); err != nil || ids.Class == nil {
		return fmt.Errorf("no class: %w", err)
	}
	class := *ids.Class
	if ids.Type != class*100+ids.Activity || ids.Category != class/1000 {
		return fmt.Errorf("class %d: type_uid %d and category_uid %d do not belong to activity %d", class, ids.Type, ids.Category, ids.Activity)
	}
	all, err := compiled()
	if err != nil {
		return err
	}
	if len(all[classes[class]]) == 0 {
		return fmt.Errorf("no schema of class %d", class)
	}
	for _, s := range all[classes[class]] {
		if err := s.Validate(v); err != nil {
			return fmt.Errorf("class %d: %w", class, err)
		}
	}
	return nil
}

// version is a published version, cut to the used classes.
type version struct {
	Classes map[string]map[string]any `json:"classes"`
	Defs    map[string]any            `json:"$defs"`
}

var compiled = sync.OnceValues(func() (map[string][]*jsonschema.Schema, error) {
	var versions map[string]version
	var added map[string]map[string]any
	if err := json.Unmarshal(published, &versions); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(additions, &added); err != nil {
		return nil, err
	}
	old, newest := versions["1.8.0"], versions["1.9.0"]
	mixed := maps.Clone(old.Defs)
	maps.Copy(mixed, newest.Defs)
	old.Classes["role_management"] = roleManagement(old.Classes["entity_management"], added["role_management"])
	with(old.Classes["entity_management"], added["entity_management"])

	all := map[string][]*jsonschema.Schema{}
	for name, class := range old.Classes {
		for form, defs := range map[string]map[string]any{"1.8.0": old.Defs, "1.8.0-objects-1.9.0": mixed} {
			if name == "role_management" && form == "1.8.0" {
				continue // it has no such objects
			}
			if err := compile(all, name, form, class, defs); err != nil {
				return nil, err
			}
		}
	}
	return all, compile(all, "detection_finding", "1.9.0", newest.Classes["detection_finding"], newest.Defs)
})

// roleManagement is the class of 1.9.0, made of another one of its category.
func roleManagement(sibling, own map[string]any) map[string]any {
	properties := maps.Clone(sibling["properties"].(map[string]any))
	for _, name := range []string{"entity", "entity_result", "comment", "access_list", "access_mask"} {
		delete(properties, name)
	}
	class := maps.Clone(sibling)
	class["properties"], class["required"] = properties, own["required"]
	with(class, own)
	return class
}

// with gives a class the added properties.
func with(class, added map[string]any) {
	maps.Copy(class["properties"].(map[string]any), added["properties"].(map[string]any))
}

func compile(all map[string][]*jsonschema.Schema, name, form string, class, defs map[string]any) error {
	document := maps.Clone(class)
	document["$defs"] = defs
	url := "https://example.com/" + name + "/" + form
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, document); err != nil {
		return fmt.Errorf("read schema %s: %w", url, err)
	}
	s, err := c.Compile(url)
	if err != nil {
		return fmt.Errorf("compile schema %s: %w", url, err)
	}
	all[name] = append(all[name], s)
	return nil
}
