package config

import (
	"bytes"
	_ "embed"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft-07) of the YAML form, for editors and `auditrelay config
// schema`. It is made from the structs of this package and their comments. It refuses nothing that
// [Parse] accepts, and leaves to Parse what a schema cannot say, such as rules between fields. It
// does not know the sections of a Go program's own [Kinds].
func Schema() []byte { return bytes.Clone(schema) }

//go:embed example.yaml
var example []byte

// Example returns a configuration in which every field is explained and optional ones are
// commented out, for `auditrelay config init`.
func Example() []byte { return bytes.Clone(example) }
