package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// routingTry is `auditrelay routing try`.
type routingTry struct {
	*configFlag
	sink, environment string
	labels            []string
	output            outputFlag
}

func (p Program) newRoutingTry() *cobra.Command {
	c := routingTry{configFlag: p.configured(), output: forms("text", "json")}
	return command("routing try", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error {
		return c.run(cmd.InOrStdin(), cmd.OutOrStdout())
	}, c.configFlag, text(&c.sink, "sink", "the sink's `NAME`"),
		text(&c.environment, "environment", "`PROJECT/ENVIRONMENT` of a body (default: the first of the configuration)"),
		texts(&c.labels, "label", "a `NAME=VALUE` of a body; may be repeated"), &c.output, needed{"sink"})
}

// maxTried bounds the input.
const maxTried = 64 << 20

func (c *routingTry) run(in io.Reader, out io.Writer) error {
	cfg, _, err := c.kinds.Check(c.file)
	if err != nil {
		return fmt.Errorf("%w; 'auditrelay config check' says more", err)
	}
	chosen, err := choose(cfg.Sinks, []string{c.sink}, c.file+"; it has")
	if err != nil {
		return err
	}
	route, err := sinks.Route(chosen[0])
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTried+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the events: %w", err)
	case len(text) > maxTried:
		return fmt.Errorf("the input is longer than %d bytes: give fewer events", maxTried)
	}
	events, err := c.events(cfg, text)
	if err != nil {
		return err
	}
	missing := false
	for i := range events {
		trial := route.Try(events[i])
		missing = missing || !trial.Delivered
		if err := c.print(out, &events[i], &trial); err != nil {
			return err
		}
	}
	if missing {
		return errNotShown
	}
	return nil
}

// events reads consecutive JSON values, or else one text.
func (c *routingTry) events(cfg *config.Config, text []byte) (all []relay.Event, err error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("there is no event on standard input")
	}
	values, read := []json.RawMessage{}, json.NewDecoder(bytes.NewReader(text))
	for err == nil {
		var value json.RawMessage
		if err = read.Decode(&value); err == nil {
			values = append(values, value)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
	case len(values) == 0:
		values = append(values, text) // a body may be any text
	default:
		return nil, fmt.Errorf("read event %d: %w", len(values)+1, err)
	}
	for i, value := range values {
		e, err := c.event(cfg, value)
		if err != nil {
			return nil, fmt.Errorf("read event %d: %w", i+1, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (c *routingTry) event(cfg *config.Config, value []byte) (relay.Event, error) {
	var head struct {
		SpecVersion string `json:"specversion"`
	}
	if json.Unmarshal(value, &head) == nil && head.SpecVersion != "" {
		return cloudevents.ParseJSON(value)
	}
	env, err := c.origin(cfg)
	if err != nil {
		return relay.Event{}, err
	}
	e := ingest.Sample(env, value, time.Now())
	for _, label := range c.labels {
		name, value, found := strings.Cut(label, "=")
		if !found {
			return relay.Event{}, fmt.Errorf("--label %q: write NAME=VALUE", label)
		}
		e.Labels = append(e.Labels, relay.Label{Name: name, Value: value})
	}
	return e, nil
}

func (c *routingTry) origin(cfg *config.Config) (credentials.Environment, error) {
	if c.environment == "" && len(cfg.Environments) > 0 {
		return credentials.EnvironmentOf(cfg.Environments[0]), nil
	}
	var known []string
	for _, e := range cfg.Environments {
		of := credentials.EnvironmentOf(e)
		if of.String() == c.environment {
			return of, nil
		}
		known = append(known, of.String())
	}
	return credentials.Environment{}, fmt.Errorf("there is no environment %q in %s; it has %s", c.environment, c.file, strings.Join(known, ", "))
}

// tried is a trial as JSON.
type tried struct {
	Sink      string          `json:"sink"`
	Delivered bool            `json:"delivered"`
	Withheld  bool            `json:"withheld"`
	Changed   bool            `json:"changed"`
	Reason    string          `json:"reason,omitempty"`
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after,omitempty"`
}

func (c *routingTry) print(out io.Writer, e *relay.Event, t *routing.Trial) error {
	if c.output.isJSON() {
		line := tried{Sink: c.sink, Delivered: t.Delivered, Withheld: t.Withheld, Changed: t.Changed, Reason: t.Reason, Before: cloudevents.AppendJSON(nil, e)}
		if t.Delivered {
			line.After = cloudevents.AppendJSON(nil, &t.Event)
		}
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(line)
	}
	_, err := io.WriteString(out, trialText(c.sink, e, t))
	return err
}

// trialText shows a trial to people.
func trialText(sink string, e *relay.Event, t *routing.Trial) string {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "  %-9s%s\n", name, text) }
	fmt.Fprintf(&b, "%s  %s  %s\n", printable(placeOf(e.Project, e.Environment)), printable(e.Type), printable(e.ID))
	line("sink", printable(sink)+": "+map[bool]string{true: "gets it, ", false: ""}[t.Delivered]+outcome(t))
	if t.Reason != "" {
		line("why", printable(t.Reason))
	}
	shown := func(name string, e *relay.Event) {
		line(name, bodyText(e.Body))
		if len(e.Labels) > 0 {
			line("", "labels "+labelsText(e.Labels))
		}
	}
	shown("event", e)
	if !t.Delivered || !t.Changed {
		return b.String()
	}
	shown("becomes", &t.Event)
	if changes, err := jsontext.Diff(nil, e.Body, t.Event.Body); err == nil {
		name := "changes"
		for _, change := range changes.List {
			line(name, printable(change.String()))
			name = ""
		}
	}
	return b.String()
}

func labelsText(labels []relay.Label) string {
	texts := make([]string, len(labels))
	for i, l := range labels {
		texts[i] = fmt.Sprintf("%s=%q", l.Name, l.Value)
	}
	return printable(strings.Join(texts, " "))
}

func outcome(t *routing.Trial) string {
	switch {
	case t.Withheld:
		return "does not get it: it goes to the dead letters"
	case !t.Delivered:
		return "does not get it: its match leaves it out"
	case t.Changed:
		return "changed"
	}
	return "as it came"
}

func bodyText(body []byte) string {
	return printable(strings.Join(strings.Fields(string(body)), " "))
}
