package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

const (
	chart        = "../../deploy/helm/auditrelay"
	manifestsDir = "../../deploy/manifests/"
)

// valueSet are values for the chart, and what becomes of them.
type valueSet struct {
	Name     string
	Values   map[string]any
	Kind     string // of the workload
	Replicas int
	Reason   string // of a refusal
}

// manifest is an object of Kubernetes, as far as these tests look at it.
type manifest struct {
	Kind     string
	Metadata metadata
	Data     map[string]string
	Spec     struct {
		Replicas                 int
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		ClusterIP                string `yaml:"clusterIP"`
		Groups                   any    `yaml:"groups"`
		Template                 struct {
			Metadata metadata
			Spec     podSpec
		}
	}
}

type metadata struct {
	Name        string
	Annotations map[string]string
}

type podSpec struct {
	TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	Containers                    []struct {
		Env          []struct{ Name, Value string }
		VolumeMounts []struct {
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// tool returns the path of a program that `make deploy-check` builds, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	built, err := filepath.Abs("../../bin/tools/" + name)
	require.NoError(t, err)
	if _, err := os.Stat(built); err == nil {
		return built
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not here; make deploy-check builds it", name)
	}
	return path
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), path)
}

func writeYAML(t *testing.T, path string, v any) {
	t.Helper()
	text, err := yaml.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// chartSets are the accepted sets, with the file of the values below all of them.
func chartSets(t *testing.T) (base string, sets []valueSet) {
	t.Helper()
	var accepted struct {
		Base valueSet
		Sets []valueSet
	}
	readYAML(t, "testdata/chart/accepted.yaml", &accepted)
	base = filepath.Join(t.TempDir(), "base.yaml")
	writeYAML(t, base, accepted.Base.Values)
	return base, accepted.Sets
}

// helm runs a command with the chart and values.
func helm(t *testing.T, base string, s valueSet, command ...string) (string, error) {
	t.Helper()
	values, err := yaml.Marshal(s.Values)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), tool(t, "helm"), append(command, chart, "--namespace", "audit", "--kube-version", "1.30.0", "-f", base, "-f", "-")...)
	var out, trouble bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(values), &out, &trouble
	if err := cmd.Run(); err != nil {
		return out.String() + trouble.String(), err
	}
	return out.String(), nil
}

// TestChart renders the chart with each set of values, checks the relay's configuration in it as
// `auditrelay config check` does, and holds all objects against the schemas of Kubernetes.
func TestChart(t *testing.T) {
	base, sets := chartSets(t)
	require.GreaterOrEqual(t, len(sets), 30)
	rendered := t.TempDir()
	for _, s := range sets {
		t.Run(s.Name, func(t *testing.T) {
			out, err := helm(t, base, s, "lint", "--strict")
			require.NoError(t, err, out)
			out, err = helm(t, base, s, "template", "relay")
			require.NoError(t, err, out)
			require.NoError(t, os.WriteFile(filepath.Join(rendered, strings.ReplaceAll(s.Name, " ", "-")+".yaml"), []byte(out), 0o600))
			checkObjects(t, s, manifests(t, out))
		})
	}
	t.Run("schemas", func(t *testing.T) { conform(t, rendered, manifestsDir+"disk.yaml", manifestsDir+"cluster.yaml") })
}

// manifests decodes a stream of YAML documents.
func manifests(t *testing.T, text string) (all []manifest) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var m manifest
		require.NoError(t, yaml.Unmarshal([]byte(document), &m), document)
		if m.Kind != "" {
			all = append(all, m)
		}
	}
	return all
}

func checkObjects(t *testing.T, s valueSet, all []manifest) {
	t.Helper()
	cluster := s.Kind == "Deployment" || s.Replicas > 1
	count := map[string]int{}
	var written string
	for _, m := range all {
		count[m.Kind]++
		switch {
		case m.Kind == s.Kind:
			assert.Equal(t, s.Replicas, m.Spec.Replicas)
			assert.Equal(t, s.Values["restartOnChange"] != false, m.Spec.Template.Metadata.Annotations["checksum/config"] != "", "an edit of the configuration is another pod")
			require.Len(t, m.Spec.Template.Spec.Containers, 1)
			checkProbes(t, m.Spec.Template.Spec)
			setEnvironment(t, m.Spec.Template.Spec)
		case m.Kind == "Service" && m.Spec.ClusterIP != "None" && !strings.HasSuffix(m.Metadata.Name, "-console"):
			assert.Equal(t, !cluster && s.Replicas == 1, m.Spec.PublishNotReadyAddresses, "a single relay refuses pushes itself")
		case m.Kind == "ConfigMap" && m.Data["relay.yaml"] != "":
			written = m.Data["relay.yaml"]
		case m.Kind == "PrometheusRule":
			var rules struct{ Groups any }
			readYAML(t, "../../deploy/prometheus/rules.yaml", &rules)
			assert.Equal(t, rules.Groups, m.Spec.Groups)
		case strings.Contains(m.Metadata.Name, "-dashboard-"):
			for name, text := range m.Data {
				assert.JSONEq(t, readFile(t, "deploy/grafana/dashboards/"+strings.TrimPrefix(name, "auditrelay-")), text)
			}
		}
	}
	assert.Equal(t, 1, count[s.Kind])
	assert.Equal(t, s.Replicas > 1, count["PodDisruptionBudget"] == 1, "a budget is for several relays")
	checkConfiguration(t, written)
}

// checkProbes: a restart may follow only from what a restart cures.
func checkProbes(t *testing.T, pod podSpec) {
	t.Helper()
	assert.Equal(t, "/healthz", pod.Containers[0].LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/readyz", pod.Containers[0].ReadinessProbe.HTTPGet.Path)
}

// setEnvironment sets the variables of the pod, and no others that a configuration names.
func setEnvironment(t *testing.T, pod podSpec) {
	t.Helper()
	for _, variable := range pod.Containers[0].Env {
		switch value := variable.Value; {
		case value != "":
			t.Setenv(variable.Name, value)
		case strings.HasSuffix(variable.Name, "_URL"):
			t.Setenv(variable.Name, "https://switch.example.com/ping/1")
		default:
			t.Setenv(variable.Name, "0123456789abcdef0123456789abcdef")
		}
	}
}

// checkConfiguration checks the file that a pod would read, with the secrets' files in their places.
func checkConfiguration(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{"/etc/auditrelay": filepath.Join(dir, "etc"), "/var/lib/auditrelay": filepath.Join(dir, "lib")} {
		text = strings.ReplaceAll(text, from, to)
	}
	for _, path := range regexp.MustCompile(regexp.QuoteMeta(filepath.Join(dir, "etc"))+`/[a-z0-9./-]+`).FindAllString(text, -1) {
		source := map[string]string{".key": "tls.key", ".crt": "tls.crt"}[filepath.Ext(path)]
		content := []byte("0123456789abcdef")
		if source != "" {
			content = certificatePair(t)[source]
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	file := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	var out bytes.Buffer
	require.Equal(t, cli.ExitOK, cli.Program{}.Execute(t.Context(), []string{"config", "check", file}, &out, &out), "%s\n%s", out.String(), text)
}

// TestChartRefuses: a wrong value is named, and nothing is rendered.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	base, _ := chartSets(t)
	var refused []valueSet
	readYAML(t, "testdata/chart/refused.yaml", &refused)
	for _, s := range refused {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, base, s, "template", "relay")
			require.Error(t, err, out)
			assert.Contains(t, out, s.Reason)
			assert.NotContains(t, out, "apiVersion:")
		})
	}
}

// TestChartKnowsTheSections: the schema of the chart's values names each section of the
// configuration, apart from what the chart sets itself.
func TestChartKnowsTheSections(t *testing.T) {
	t.Parallel()
	type object struct{ Properties map[string]json.RawMessage }
	var schema, section object
	require.NoError(t, json.Unmarshal([]byte(readFile(t, "deploy/helm/auditrelay/values.schema.json")), &schema))
	require.NoError(t, json.Unmarshal(schema.Properties["config"], &section))
	for _, c := range []struct {
		at  string
		of  reflect.Type
		own []string // set by the chart
	}{
		{"", reflect.TypeFor[config.Config](), []string{"data_dir"}},
		{"ingest", reflect.TypeFor[config.Ingest](), []string{"listen", "tls", "behind_proxy", "anonymous"}},
		{"admin", reflect.TypeFor[config.Admin](), []string{"listen", "tls", "token", "hosts"}},
		{"audit", reflect.TypeFor[config.Audit](), []string{"key_file", "key_env"}},
		{"log", reflect.TypeFor[config.Log](), nil},
	} {
		known := section
		if c.at != "" {
			known = object{}
			require.NoError(t, json.Unmarshal(section.Properties[c.at], &known))
		}
		var names, inSchema []string
		for i := range c.of.NumField() {
			names = append(names, c.of.Field(i).Tag.Get("yaml"))
		}
		for name := range known.Properties {
			inSchema = append(inSchema, name)
		}
		assert.ElementsMatch(t, names, append(inSchema, c.own...), c.at)
	}
}

// TestChartKnowsTheSecrets: the chart refuses each secret of the configuration that is written out,
// by its name, except for addresses.
func TestChartKnowsTheSecrets(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`regexMatch "(\(\?i\)[^"]+)" \$key`).FindStringSubmatch(readFile(t, "deploy/helm/auditrelay/templates/_helpers.tpl"))
	require.NotNil(t, names)
	known, seen := regexp.MustCompile(names[1]), 0
	var walk func(reflect.Type)
	walk = func(section reflect.Type) {
		for i := range section.NumField() {
			kind, name := section.Field(i).Type, section.Field(i).Tag.Get("yaml")
			for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			switch {
			case kind == reflect.TypeFor[secret.Text]() && name != "url":
				seen++
				assert.Truef(t, known.MatchString(name), "%s.%s may be written out", section.Name(), name)
			case kind.Kind() == reflect.Struct && kind != reflect.TypeFor[secret.Text]() && name != "-":
				walk(kind)
			}
		}
	}
	walk(reflect.TypeFor[config.Config]())
	assert.Greater(t, seen, 10)
}
