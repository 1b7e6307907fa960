package config

import "github.com/auditrelay/auditrelay/config/secret"

// Match chooses events: all of the fields that are given have to fit.
type Match struct {
	// Types, Projects and Environments are names, of which one has to fit; a
	// "*" stands for any characters.
	Types        []string `yaml:"types"`
	Projects     []string `yaml:"projects"`
	Environments []string `yaml:"environments"`
	// CEL is an expression of the Common Expression Language that is true for
	// what is to be delivered.
	CEL string `yaml:"cel"`
}

// Redact takes fields out of JSON bodies, each named by a JSON pointer (RFC 6901).
type Redact struct {
	// Remove takes the values out.
	Remove []string `yaml:"remove"`
	// Hash replaces them by an HMAC-SHA256 with Key, so that equal values stay equal.
	Hash []string    `yaml:"hash"`
	Key  secret.Text `yaml:"key"`
}

func (k *checker) match(string, *Match) {}

func (k *checker) redact(string, *Redact) {}
