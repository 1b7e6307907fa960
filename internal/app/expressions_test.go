package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const deployDir = "../../deploy"

// alertRules are the groups of rules.yaml.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(t *testing.T) (rules alertRules) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, "prometheus/rules.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &rules))
	require.NotEmpty(t, rules.Groups)
	return rules
}

// checkExpressions holds each expression of the rules and the dashboards against the series
// of a running relay: names, and labels in selectors, groupings and texts.
func checkExpressions(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	known := knownSeries(families)
	expressions := map[string]string{} // by place
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				known.names[rule.Record] = nil
			}
			expressions[rule.Record+rule.Alert+" "+rule.Labels["severity"]] = rule.Expr
			known.checkTexts(t, rule.Alert, slices.Collect(maps.Values(rule.Annotations))...)
		}
	}
	found, texts := dashboardExpressions(t)
	maps.Copy(expressions, found)
	for place, all := range texts {
		known.checkTexts(t, place, all...)
	}
	require.Greater(t, len(expressions), 100)
	for place, expression := range expressions {
		known.check(t, place, expression)
	}
}

// dashboardExpressions are those of the panels and variables, and the texts that show
// labels, by place.
func dashboardExpressions(t *testing.T) (found map[string]string, texts map[string][]string) {
	t.Helper()
	found, texts = map[string]string{}, map[string][]string{}
	files, err := filepath.Glob(filepath.Join(deployDir, "grafana/dashboards/*.json"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var board struct {
			Templating struct {
				List []struct{ Name, Type, Definition string }
			}
			Panels []struct {
				Title   string
				Targets []struct{ Expr, LegendFormat string }
			}
		}
		require.NoError(t, json.Unmarshal(text, &board), file)
		for _, v := range board.Templating.List {
			if query, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				at := strings.LastIndex(query, ",")
				found[file+" "+v.Name] = query[:at]
				texts[file] = append(texts[file], "{{"+strings.TrimSpace(strings.TrimSuffix(query[at+1:], ")"))+"}}")
			}
		}
		for _, p := range board.Panels {
			for i, target := range p.Targets {
				found[fmt.Sprintf("%s %s %d", file, p.Title, i)] = target.Expr
				texts[file] = append(texts[file], target.LegendFormat)
			}
		}
	}
	return found, texts
}

// series are those of a relay: their label sets by name, and the names of all labels. A name
// without label sets is not looked into.
type series struct {
	names  map[string][]map[string]string
	labels map[string]bool
}

func knownSeries(families map[string]*dto.MetricFamily) series {
	s := series{map[string][]map[string]string{"up": nil}, map[string]bool{"job": true, "instance": true, "le": true}}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			set := map[string]string{"job": "auditrelay"}
			for _, l := range m.GetLabel() {
				set[l.GetName()] = l.GetValue()
				s.labels[l.GetName()] = true
			}
			ends := []string{""}
			switch {
			case m.GetHistogram() != nil:
				ends = []string{"_bucket", "_sum", "_count"}
			case m.GetSummary() != nil:
				ends = []string{"", "_sum", "_count"}
				s.labels["quantile"] = true
			}
			for _, end := range ends {
				s.names[name+end] = append(s.names[name+end], set)
			}
		}
	}
	return s
}

// The tokens of an expression: a string, a duration or range, a number, a name, or a sign.
var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[0-9][0-9a-zA-Z.]*|[a-zA-Z_:][a-zA-Z0-9_:]*|!=|=~|!~|==|>=|<=|[^\s]`)

var (
	name     = regexp.MustCompile(`^[a-zA-Z_:]`)
	grouping = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	words    = []string{"and", "or", "unless", "bool", "offset", "Inf", "NaN"}
)

// check parses as much of an expression as it takes to find the names and labels.
func (s series) check(t *testing.T, place, expression string) {
	t.Helper()
	tokens := token.FindAllString(expression, -1)
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	open := []string{}
	for i := 0; i < len(tokens); i++ {
		switch word := tokens[i]; {
		case word == "(":
			open = append(open, ")")
		case word == ")":
			if assert.NotEmpty(t, open, "%s: %s: a ) too many", place, expression) {
				open = open[1:]
			}
		case slices.Contains(grouping, word) && at(i+1) == "(":
			for i += 2; i < len(tokens) && tokens[i] != ")"; i++ {
				if tokens[i] != "," {
					assert.True(t, s.labels[tokens[i]], "%s groups by %s, which is no label", place, tokens[i])
				}
			}
		case !name.MatchString(word) || slices.Contains(words, word) || at(i+1) == "(", slices.Contains(grouping, at(i+1)):
		default:
			end := i
			if at(i+1) == "{" {
				end = i + 1 + slices.Index(tokens[i+1:], "}")
				require.Greater(t, end, i, "%s: %s: no }", place, expression)
			}
			s.checkSelector(t, place, word, tokens[i+1:end+1])
			i = end
		}
	}
	assert.Empty(t, open, "%s: %s: a ) is missing", place, expression)
}

// checkSelector looks for a series with the name, and the labels of the matchers.
func (s series) checkSelector(t *testing.T, place, name string, matchers []string) {
	t.Helper()
	sets, known := s.names[name]
	if !assert.True(t, known, "%s names %s, which the running relay does not have", place, name) || sets == nil {
		return
	}
	matches := func(set map[string]string) bool {
		for i := 1; i+2 < len(matchers); i += 4 { // { label = "value" ,
			label, sign, want := matchers[i], matchers[i+1], strings.Trim(matchers[i+2], `"`)
			value, has := set[label]
			switch {
			case label == "instance":
			case !has:
				return false
			case strings.HasPrefix(want, "$"):
			case sign == "=" && value != want, sign == "=~" && !regexp.MustCompile("^(?:"+want+")$").MatchString(value):
				return false
			}
		}
		return true
	}
	assert.True(t, slices.ContainsFunc(sets, matches), "%s selects %s%s: the running relay has no such series", place, name, strings.Join(matchers, ""))
}

// checkTexts checks the labels in annotations and legends.
func (s series) checkTexts(t *testing.T, place string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)|\{\{(\w+)\}\}`).FindAllStringSubmatch(text, -1) {
			assert.True(t, s.labels[m[1]+m[2]], "%s shows the label %s, which no series has", place, m[1]+m[2])
		}
	}
}

// Each alert names the trouble in plain words, and has a page: its meaning, the things to
// look at, and the remedy. It has a unit test of its firing, and one of its silence.
func TestEachAlertHasAPageAndTests(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile(filepath.Join(deployDir, "prometheus/tests.yaml"))
	require.NoError(t, err)
	pages := map[string]bool{}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			page := "prometheus/runbook/" + rule.Alert + ".md"
			pages[rule.Alert+".md"] = true
			assert.True(t, strings.HasSuffix(rule.Annotations["runbook_url"], "/deploy/"+page), rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			assert.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			text, err := os.ReadFile(filepath.Join(deployDir, page))
			if assert.NoError(t, err) {
				for _, heading := range []string{"# " + rule.Alert + "\n", "\n## What users notice\n", "\n## What to look at\n", "\n## What to do\n"} {
					assert.Contains(t, string(text), heading, page)
				}
			}
			fires := fmt.Sprintf(`severity="%s", [^}]*alertname="%s"`, rule.Labels["severity"], rule.Alert)
			assert.Regexp(t, fires, string(tests), "no test sees it fire")
			assert.Regexp(t, fmt.Sprintf(`alertname="%s", alertstate="firing"}', eval_time: \w+, exp_samples: \[\]`, rule.Alert), string(tests), "no test sees it silent")
		}
	}
	files, err := os.ReadDir(filepath.Join(deployDir, "prometheus/runbook"))
	require.NoError(t, err)
	for _, file := range files {
		assert.True(t, pages[file.Name()], "%s is of no alert", file.Name())
	}
}

// promtool runs Prometheus's own tool, from PROMTOOL or PATH, and returns its output. It is
// empty without a complaint of `check metrics`.
func promtool(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	tool := os.Getenv("PROMTOOL")
	if tool == "" {
		var err error
		if tool, err = exec.LookPath("promtool"); err != nil {
			t.Skip("SKIPPED promtool: set PROMTOOL to it, or put it on PATH")
		}
	}
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

// The compose file mounts files and folders that are there.
func TestComposeMountsWhatIsThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deployDir, "compose/compose.yaml"))
	require.NoError(t, err)
	mounts := regexp.MustCompile(`- (\.\./[^:]+):`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, mounts, 4)
	for _, m := range mounts {
		_, err := os.Stat(filepath.Join(deployDir, "compose", m[1]))
		assert.NoError(t, err)
	}
}

func TestAlertRulesByPromtool(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "config", "--syntax-only", "prometheus.yml"}, {"check", "rules", "rules.yaml"}, {"test", "rules", "tests.yaml"}} {
		promtool(t, filepath.Join(deployDir, "prometheus"), "", args...)
	}
	rules := "groups:\n  - name: dashboards\n    rules:\n"
	found, _ := dashboardExpressions(t)
	for i, place := range slices.Sorted(maps.Keys(found)) {
		rules += fmt.Sprintf("      - {record: e%d, expr: %q}\n", i, strings.ReplaceAll(found[place], "$__rate_interval", "1m"))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dashboards.yaml"), []byte(rules), 0o600))
	promtool(t, dir, "", "check", "rules", "dashboards.yaml")
}
