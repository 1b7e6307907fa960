package config

import (
	"fmt"
	"os"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads the file at path, with the process's environment for ${NAME}; see
// [Parse] for the rest. Of the files that it names, only those of secrets are
// read.
func Load(path string) (cfg *Config, warnings []Problem, err error) { return Kinds(nil).Load(path) }

// Load does what the function does.
func (k Kinds) Load(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(*decoder, *checker, *Config) {})
}

// Check loads as [Load] does, and looks at all files that the configuration
// names. What is missing is an error; what every user of the machine can read
// or change, as a secret's file, gives a warning.
func Check(path string) (cfg *Config, warnings []Problem, err error) { return Kinds(nil).Check(path) }

// Check does what the function does.
func (k Kinds) Check(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(d *decoder, k *checker, c *Config) {
		files{k, k.fail}.all(path, d, c)
	})
}

// LoadToRun is [Check] for a relay that starts: a missing file gives a warning,
// for it may come before it is needed. What cannot do without it fails by
// itself.
func LoadToRun(path string) (cfg *Config, warnings []Problem, err error) {
	return Kinds(nil).LoadToRun(path)
}

// LoadToRun does what the function does.
func (k Kinds) LoadToRun(path string) (cfg *Config, warnings []Problem, err error) {
	return k.load(path, func(d *decoder, k *checker, c *Config) {
		files{k, func(field string, _ any, reason string) { k.warn(field, reason) }}.all(path, d, c)
	})
}

func (k Kinds) load(path string, look func(*decoder, *checker, *Config)) (*Config, []Problem, error) {
	data, err := readRegular(path, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	return k.read(path, data, os.LookupEnv, look)
}

// DataDir reads nothing but data_dir from the file at path, for commands that
// look for a running relay: they need not have the environment variables and
// files that its secrets come from.
func DataDir(path string) (string, error) {
	data, err := readRegular(path, maxFile)
	if err != nil {
		return "", fmt.Errorf("read config: %w", err)
	}
	d := newDecoder(os.LookupEnv)
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
	return Kinds(nil).Parse(name, data, env)
}

// Parse does what the function does.
func (k Kinds) Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return k.read(name, data, env, func(*decoder, *checker, *Config) {})
}

// read is Parse, and at last looks at the configuration as a whole.
func (k Kinds) read(name string, data []byte, env func(string) (string, bool), look func(*decoder, *checker, *Config)) (
	cfg *Config, warnings []Problem, err error,
) {
	if err := k.check(); err != nil {
		return nil, nil, err
	}
	d := newDecoder(env)
	d.kinds = k
	cfg = d.document(data)
	if cfg != nil && !d.full() {
		cfg.SetDefaults()
		c := newChecker(d)
		c.config(cfg)
		look(d, c, cfg)
		d.errors, d.warnings = c.errors, c.warnings
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
