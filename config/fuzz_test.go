package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add(Example())
	f.Add([]byte(minimal))
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	env := environment(map[string]string{"KEY": "hunter2-of-some-length", "WORKSPACE_KEY_ID": "a", "WORKSPACE_KEY_SECRET": "b"})
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, _, err := Parse("fuzz.yaml", data, env)
		var found Errors
		switch {
		case err == nil && cfg == nil:
			t.Fatal("neither a configuration nor an error")
		case err == nil:
			// A configuration that was loaded is valid and has all defaults.
			cfg.SetDefaults()
			if err := cfg.Validate(); err != nil {
				t.Fatalf("loaded, yet not valid: %v", err)
			}
		case cfg != nil || !errors.As(err, &found) || len(found) == 0:
			t.Fatalf("an error of another kind: %v", err)
		}
		for _, p := range found {
			if p.Reason == "" || p.File != "fuzz.yaml" {
				t.Fatalf("an incomplete problem: %+v", p)
			}
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "10MiB", "1 kB", "-1", "9223372036854775807", "9000000000GB", "1.5MiB", "B", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var size, again Size
		if size.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(size.String())); err != nil || again != size {
			t.Fatalf("%q is %d, which prints as %q and reads as %d: %v", text, size, size, again, err)
		}
	})
}
