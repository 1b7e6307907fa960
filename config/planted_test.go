package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

// planted are secrets that somebody may put into a wrong field.
func planted() []string {
	return []string{
		"k7Qm2Zx9Vw4Lp8Rt6Yb3", "9f86d081884c7d659a2feaa0c55ad015", "3e7c1a52-9b1d-4c3e-8f21-0d6a5b4c3e2f",
		"whsec_SFVOVEVSMi1nLUhVTlRFUjItZy1IVU5URVIyLWc=", "SUAKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY",
		"relay:hunter2-pass", "https://relay:hunter2-pass@management.example.com", "relay:hunter2-pass@kafka-1:9092",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.dozjgNryP4J3jVmNHl0w5N", "p4ss w0rd:hunter2-pass", "Bearer k7Qm2Zx9Vw4Lp8Rt6Yb3",
		"password=hunter2-pass", "glsa_k7Qm2Zx9Vw4Lp8Rt6Yb3_1a2b3c4d",
	}
}

// plantedIn are the values to try in the field that is visited as the nth: all of them, or every
// fourth in a short run, so that each value is still tried in many fields.
func plantedIn(n int, short bool) (values []string) {
	for i, value := range planted() {
		if !short || (n+i)%4 == 0 {
			values = append(values, value)
		}
	}
	return values
}

// texts visits the text fields of the structs, each with its path.
func texts(v reflect.Value, at string, visit func(at string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[secret.Text]():
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		texts(v.Elem(), at, visit)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), fmt.Sprintf("%s[%d]", at, i), visit)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), join(at, v.Type().Field(i).Tag.Get("yaml")), visit)
		}
	case v.CanInterface():
		visit(at, v)
	}
}

// TestPlantedSecretsAreNotPrinted puts a secret into every field that is for other values, and
// looks for it in all messages about the configuration.
func TestPlantedSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	cfg, _ := decodeAll(t)
	count := 0
	texts(reflect.ValueOf(cfg), "", func(path string, v reflect.Value) {
		count++
		for _, value := range plantedIn(count, testing.Short()) {
			if v.Kind() != reflect.Map {
				d := newDecoder(func(string) (string, bool) { return "x", true })
				d.scalar(value, 1, path, reflect.New(v.Type()).Elem())
				assertUnsaid(t, value, path, fmt.Sprint(d.errors, d.warnings))
			}
			if v.Kind() != reflect.String {
				continue
			}
			before, expression := v.String(), cfg.Sinks[0].Match.CEL
			if path != "sinks[0].match.cel" { // compiling it takes most of the time
				cfg.Sinks[0].Match.CEL = ""
			}
			v.SetString(value)
			k := &checker{places: map[string]place{path: {line: 1, text: value}}}
			k.config(cfg)
			files{k, k.fail}.all("relay.yaml", newDecoder(nil), cfg)
			assertUnsaid(t, value, path, fmt.Sprint(k.errors, k.warnings))
			cfg.Sinks[0].Match.CEL = expression
			v.SetString(before)
		}
	})
	assert.Greater(t, count, 100, "fields")
}

func assertUnsaid(t *testing.T, value, path, said string) {
	t.Helper()
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(":@/ =.", r) }) {
		if len(part) > 9 && part != "management" {
			require.NotContainsf(t, said, part, "%s printed what it holds", path)
		}
	}
}

func TestUnknownFieldsShowNoValue(t *testing.T) {
	t.Parallel()
	for _, value := range planted() {
		for _, text := range []string{"secrt: %q\n", "workspace: {pasword: %q}\n", "sinks: [{kafka: {sasl: {pass: %q}}}]\n", "log: %q\n", "sinks: [%q]\n"} {
			_, warnings, err := parse(t, minimal+fmt.Sprintf(text, value))
			require.Error(t, err)
			assertUnsaid(t, value, text, fmt.Sprint(err, warnings))
		}
	}
	_, _, err := parse(t, minimal+"workspace: {pasword: hunter2}\n")
	require.ErrorContains(t, err, "workspace.pasword: unknown field")
}

// TestHarmlessValuesAreShown, because an error that does not show its value is harder to find.
func TestHarmlessValuesAreShown(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"kafka", "kafka-1.example.com:9092x", "/etc/auditrelay/tls.crt", "https://management.example.com", "auditrelay.{project}.{environmnt}",
		"my-project/production", "0.0.0.0:3100", "10MiBs", "/var/lib/auditrelay/archive/events-2026-11.jsonl", "nats://nats-1.internal.example.com",
		"my-first-project-of-many-2026", "${WORKSPACE_SECRET_2026_PRODUCTION}",
	} {
		assert.Equal(t, value, shown(value))
	}
}
