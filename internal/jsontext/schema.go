package jsontext

import "strings"

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
