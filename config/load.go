package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load reads the file at path, with the process's environment for ${NAME}; see [Parse] for the
// rest. Of the files that it names, it reads only those of secrets.
func Load(path string) (cfg *Config, warnings []Problem, err error) { return Kinds(nil).Load(path) }

// Load is like the function [Load], for these kinds too.
func (k Kinds) Load(path string) (cfg *Config, warnings []Problem, err error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, nil, err
	}
	return k.Parse(path, data, os.LookupEnv)
}

// Check loads like [Kinds.Load], and also examines all files that the configuration names, and
// the disk. A missing file is an error, and so are a certificate that is not valid now or does
// not fit its key, and a budget larger than the disk. For a file that every user of the machine
// can open, such as that of a secret, there is a warning.
func (k Kinds) Check(path string) (cfg *Config, warnings []Problem, err error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, nil, err
	}
	return k.CheckText(path, data, os.LookupEnv)
}

// CheckText is like [Kinds.Check], for a text that is to be in the file at path, and with the
// variables of env.
func (k Kinds) CheckText(path string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return k.read(newDecoder(env), path, data, func(d *decoder, k *checker, c *Config) {
		files{k, k.fail}.all(path, d, c)
	})
}

// LoadToRun is [Kinds.Check] for a start: what Check reports as errors about files and the disk
// become warnings. A missing file may be put there before it is used, and otherwise its user
// fails. And it is better to take pushes with an expired certificate than not at all.
func (k Kinds) LoadToRun(path string) (cfg *Config, source Source, warnings []Problem, err error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, source, nil, err
	}
	return k.readToRun(path, data, nil)
}

// readToRun is LoadToRun of a text, with what is kept of the secrets in files.
func (k Kinds) readToRun(path string, data []byte, kept map[string]secretSource) (cfg *Config, source Source, warnings []Problem, err error) {
	d := newDecoder(os.LookupEnv)
	d.before = kept
	cfg, warnings, err = k.read(d, path, data, func(d *decoder, k *checker, c *Config) {
		files{k, func(field string, _ any, reason string) { k.warn(field, reason) }}.all(path, d, c)
		source.Files = filesOf(d, c)
	})
	source.Again = func(fresh func(field string) bool) (*Config, Source, error) {
		kept := maps.Clone(d.secrets)
		maps.DeleteFunc(kept, func(field string, _ secretSource) bool { return fresh(field) })
		cfg, source, _, err := k.readToRun(path, data, kept)
		return cfg, source, err
	}
	return cfg, source, warnings, err
}

// Source is the text of a configuration. What it names may change while the text does not.
type Source struct {
	// Again reads the same text once more: those secrets for which fresh reports true from their files
	// as they are then, and the other ones in files as they were read for this Source.
	Again func(fresh func(field string) bool) (*Config, Source, error)
	// Files are those of secrets and those that *_file fields name, by the fields' paths as in
	// [Problem.Field], without those that the relay writes itself.
	Files map[string]string
}

func readConfig(path string) ([]byte, error) {
	data, err := readRegular(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return data, nil
}

// DataDir reads nothing but data_dir from the file at path. It is for commands to a running
// relay, which need not have the environment variables and files of its secrets.
func DataDir(path string) (string, error) {
	cfg, faults, err := withoutSecrets(path)
	if err != nil {
		return "", err
	}
	if cfg != nil && cfg.DataDir != "" {
		return cfg.DataDir, nil
	}
	if cfg == nil || faults != nil {
		return "", faults
	}
	return "", fmt.Errorf("%s: data_dir is not set", path)
}

// Witnesses reads nothing but audit.witnesses and audit.quorum from the file at path, as
// [DataDir] does.
func Witnesses(path string) (witnesses []Witness, quorum int, err error) {
	cfg, faults, err := withoutSecrets(path)
	if err != nil {
		return nil, 0, err
	}
	if cfg == nil {
		return nil, 0, faults
	}
	c := &Config{Audit: Audit{Witnesses: cfg.Audit.Witnesses, Quorum: cfg.Audit.Quorum}}
	c.SetDefaults()
	for i, w := range c.Audit.Witnesses {
		if w.Key == "" {
			return nil, 0, errors.Join(fmt.Errorf("%s: audit.witnesses[%d].key is not set", path, i), faults)
		}
	}
	return c.Audit.Witnesses, c.Audit.Quorum, nil
}

// Lines returns a function from a field's path, as in [Problem.Field], to its line in the file
// at path, or, if the field is not given, to the line of its section. It returns 0 for a line
// that is not known.
func Lines(path string) func(field string) int {
	k := &checker{}
	if data, err := readRegular(path, maxFile); err == nil {
		d := newDecoder(os.LookupEnv)
		d.document(data)
		k.places = d.places
	}
	return k.line
}

// withoutSecrets reads as much as possible of the file at path; cfg is nil if it is no YAML
// document.
func withoutSecrets(path string) (cfg *Config, faults, err error) {
	data, err := readConfig(path)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoder(os.LookupEnv)
	cfg = d.document(data)
	if len(d.errors) > 0 {
		faults = Errors(inOrder(path, d.errors))
	}
	return cfg, faults, nil
}

// Parse reads one YAML document, resolves ${NAME} and file:PATH, fills in the defaults and
// validates the whole. An unknown field is an error.
//
// For a faulty document it returns no configuration, and an [Errors] with all its errors. The
// warnings are returned in both cases. Neither contains a secret. name is the document's name
// in errors.
func Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return Kinds(nil).Parse(name, data, env)
}

// Parse is like the function [Parse], for these kinds too.
func (k Kinds) Parse(name string, data []byte, env func(string) (string, bool)) (cfg *Config, warnings []Problem, err error) {
	return k.read(newDecoder(env), name, data, func(*decoder, *checker, *Config) {})
}

// read is Parse, and finally calls look with the configuration as a whole.
func (k Kinds) read(d *decoder, name string, data []byte, look func(*decoder, *checker, *Config)) (cfg *Config, warnings []Problem, err error) {
	if err := k.check(); err != nil {
		return nil, nil, err
	}
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

// Validate checks a configuration made by a Go program, after SetDefaults. The error is an
// [Errors] without lines.
func (c *Config) Validate() error {
	k := &checker{}
	k.config(c)
	if len(k.errors) > 0 {
		return Errors(k.errors)
	}
	return nil
}
