package config

import (
	"fmt"
	"io"
	"os"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads the file at path, with the process's environment for ${NAME}; see
// [Parse] for the rest.
func Load(path string) (cfg *Config, warnings []Problem, err error) {
	data, err := readBounded(path, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(path, data, os.LookupEnv)
}

// DataDir reads nothing but data_dir from the file at path, for commands that
// look for a running relay: they need not have the environment variables and
// files that its secrets come from.
func DataDir(path string) (string, error) {
	data, err := readBounded(path, maxFile)
	if err != nil {
		return "", fmt.Errorf("read config: %w", err)
	}
	d := &decoder{env: os.LookupEnv, marks: map[string]mark{}}
	cfg := d.document(data)
	if cfg != nil && cfg.DataDir != "" {
		return cfg.DataDir, nil
	}
	if cfg == nil || len(d.errors) > 0 {
		return "", Errors(inOrder(path, d.errors))
	}
	return "", fmt.Errorf("%s: data_dir is not set", path)
}

// Parse reads one YAML document, puts in what ${NAME} and file:PATH stand for,
// fills in the defaults and validates the whole. An unknown field is an error.
//
// Where the document is wrong, the error is an [Errors] with all that is wrong
// with it, and no configuration is returned. The warnings are returned either
// way. No secret is in either. name is what the errors call the document.
func Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	d := &decoder{env: env, marks: map[string]mark{}}
	cfg = d.document(data)
	if cfg != nil && !d.full() {
		cfg.SetDefaults()
		k := newChecker(d)
		k.config(cfg)
		d.errors, d.warnings = k.errors, k.warnings
	}
	warnings = inOrder(name, d.warnings)
	if len(d.errors) > 0 {
		return nil, warnings, Errors(inOrder(name, d.errors))
	}
	return cfg, warnings, nil
}

// Validate checks a configuration that a Go program has filled in, after
// SetDefaults. The error is an [Errors] without lines.
func (c *Config) Validate() error {
	k := &checker{}
	k.config(c)
	if len(k.errors) > 0 {
		return Errors(k.errors)
	}
	return nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}
