package config

import (
	"bytes"
	_ "embed"
)

//go:embed example.yaml
var example []byte

// Example returns a configuration in which every field is explained and optional ones are
// commented out, for `auditrelay config init`.
func Example() []byte { return bytes.Clone(example) }
