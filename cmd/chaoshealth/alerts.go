package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// scrape is a relay's metrics at a time.
type scrape struct {
	at   time.Time
	up   bool
	text string
}

func (s *stage) scrape(ctx context.Context) scrape {
	code, text, err := s.relay.Ask(ctx, "/metrics")
	return scrape{at: time.Now(), up: err == nil && code == 200, text: text}
}

// steps is how many minutes the metrics of an incident are held for.
const steps = 400

// checkAlerts has promtool evaluate the rules over the metrics of each incident. It
// returns the missing alerts, with their incidents.
func checkAlerts(ctx context.Context, o options, dir string, all []*outcome) (silent []string, err error) {
	promtool := findPromtool(o.promtool)
	if promtool == "" {
		fmt.Println("\nSKIPPED the alerts: promtool is not here; build github.com/prometheus/prometheus/cmd/promtool, and set PROMTOOL")
		return nil, nil
	}
	rules, err := filepath.Abs(o.rules)
	if err != nil {
		return nil, err
	}
	left, err := alertsIn(rules)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\n%-28s %-44s %s\n", "ALERT", "INCIDENT", "FIRES")
	for i, out := range all {
		for _, c := range []struct {
			alerts  []string
			scrapes []scrape
		}{{out.alerts, out.during}, {out.alertsAfter, out.after}} {
			for _, alert := range c.alerts {
				fires := len(c.scrapes) == 2 && fires(ctx, promtool, rules, fmt.Sprintf("%s/alert-%02d-%s.yaml", dir, i, alert), alert, c.scrapes)
				fmt.Printf("%-28s %-44s %v\n", alert, out.name, fires)
				if fires {
					delete(left, alert)
				} else {
					silent = append(silent, alert+" in "+out.name)
				}
			}
		}
	}
	if o.only == "" {
		for alert := range left {
			fmt.Printf("%-28s %-44s %v\n", alert, "-", "by no incident")
			silent = append(silent, alert+" in any incident")
		}
	}
	return silent, nil
}

// alertsIn reads the names of the alerts in a file of rules.
func alertsIn(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the alert rules: %w", err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if _, name, ok := strings.Cut(line, "alert:"); ok {
			all[strings.TrimSpace(name)] = true
		}
	}
	return all, nil
}

// fires reports whether an alert fires over an incident's metrics.
func fires(ctx context.Context, promtool, rules, file, alert string, scrapes []scrape) bool {
	var test bytes.Buffer
	fmt.Fprintf(&test, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
	writeSeries(&test, scrapes[0], scrapes[1])
	fmt.Fprintf(&test, `    promql_expr_test:
      - expr: count(ALERTS{alertname=%q, alertstate="firing"}) > bool 0
        eval_time: %dm
        exp_samples: [{labels: '{}', value: 1}]
`, alert, steps-1)
	if os.WriteFile(file, test.Bytes(), 0o600) != nil {
		return false
	}
	return exec.CommandContext(ctx, promtool, "test", "rules", file).Run() == nil
}

// writeSeries writes the metrics as the input of promtool's unit tests. Counters grow by their
// growth in the incident, each minute; a lag that grows goes on growing; everything else stays
// as it was last. The tests' clock begins at zero, so times become their distance to the
// scrape.
func writeSeries(to *bytes.Buffer, first, last scrape) {
	up := 0
	if last.up {
		up = 1
	}
	fmt.Fprintf(to, "      - {series: 'up{job=\"auditrelay\",instance=\"relay\"}', values: '%dx%d'}\n", up, steps)
	before := samples(first.text)
	counters := counterNames(last.text)
	for _, line := range strings.Split(last.text, "\n") {
		series, value, ok := sample(line)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(series, "{")
		values := fmt.Sprintf("%vx%d", value, steps)
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0): // it has no short form
			values = strings.Repeat(fmt.Sprint(value)+" ", steps)
		case counters[name]:
			growth := value - before[series]
			if growth < 0 { // the relay was started again, and counts from zero
				growth = value
			}
			values = fmt.Sprintf("%v+%vx%d", value, growth, steps)
		case strings.HasSuffix(name, "_lag_seconds") && value > before[series]:
			values = fmt.Sprintf("%v+60x%d", value, steps)
		case strings.HasSuffix(name, "_timestamp_seconds"):
			values = fmt.Sprintf("%vx%d", value-float64(last.at.UnixMilli())/1000, steps)
		}
		fmt.Fprintf(to, "      - {series: '%s', values: '%s'}\n", strings.ReplaceAll(labelled(series), "'", "''"), values)
	}
}

// sample reads a line of the text format.
func sample(line string) (series string, value float64, ok bool) {
	at := strings.LastIndexByte(line, ' ')
	if at < 0 || strings.HasPrefix(line, "#") {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	return line[:at], value, err == nil
}

func samples(text string) map[string]float64 {
	all := map[string]float64{}
	for _, line := range strings.Split(text, "\n") {
		if series, value, ok := sample(line); ok {
			all[series] = value
		}
	}
	return all
}

// counterNames are the names of all counters, with those of histograms.
func counterNames(text string) map[string]bool {
	all := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) != 4 || f[1] != "TYPE" {
			continue
		}
		switch f[3] {
		case "counter":
			all[f[2]] = true
		case "histogram":
			all[f[2]+"_bucket"], all[f[2]+"_sum"], all[f[2]+"_count"] = true, true, true
		}
	}
	return all
}

// labelled adds Prometheus's own labels.
func labelled(series string) string {
	const labels = `job="auditrelay",instance="relay"`
	if name, rest, ok := strings.Cut(series, "{"); ok {
		return name + "{" + labels + "," + rest
	}
	return series + "{" + labels + "}"
}
