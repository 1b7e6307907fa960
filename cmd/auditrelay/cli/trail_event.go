package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/relay"
)

// proveEventFlags are those of 'trail prove-event'.
type proveEventFlags struct {
	which                     trailFlags
	source, body, out, verify string
	trust                     trustFlags
}

func newTrailProveEvent() *cobra.Command {
	f := proveEventFlags{trust: trustFlags{when: ", with --verify"}}
	return command("trail prove-event", alone(whichRelay), func(cmd *cobra.Command, args []string, _ alone) error {
		if f.verify != "" {
			return f.verifyBundle(cmd.OutOrStdout(), args)
		}
		return f.prove(cmd, args[0])
	}, &f, takes(func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 0 && f.verify == "" {
			return errors.New("give the ID of one event, or a FILE with the event as a CloudEvent in JSON")
		}
		return nil
	}))
}

func (f *proveEventFlags) addTo(cmd *cobra.Command) {
	f.which.relayFlags.addTo(cmd)
	needsRelay := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if f.verify == "" {
			return needsRelay(cmd, args)
		}
		return f.trust.needed("a bundle")
	}
	withFlags(cmd, text(&f.source, "source", "only an event of this CloudEvents `SOURCE`: /projects/P/environments/E"),
		text(&f.body, "body", "only the event whose body is that of this `FILE`; the argument is its id then"),
		text(&f.out, "file", "write the bundle to a new `FILE` instead of standard output"),
		text(&f.verify, "verify", "check this `BUNDLE` instead, by --key or --policy"), &f.trust)
}

func (f *proveEventFlags) prove(cmd *cobra.Command, arg string) error {
	query, err := f.query(arg)
	if err != nil {
		return err
	}
	client, err := f.which.relayFlags.open(cmd)
	if err != nil {
		return err
	}
	bundle, err := client.ProveEvent(cmd.Context(), query)
	if err != nil {
		return err
	}
	proven, err := bundle.Verify() // the written proof holds
	if err != nil {
		return err
	}
	if err := proveEntry(cmd, &f.which, &bundle.SpanEntry); err != nil {
		return fmt.Errorf("the event stands in the span of entry %d, but the entry is not proven; if it is a new one, try again in some seconds: %w", bundle.EntryIndex, err)
	}
	if err := writeTo(f.out, cmd.OutOrStdout(), func(w io.Writer) error { return json.NewEncoder(w).Encode(bundle) }); err != nil {
		return err
	}
	return sayReceived(cmd.ErrOrStderr(), bundle, &proven)
}

// proveEntry proves the entry of a span, from the relay's files for public tools.
func proveEntry(cmd *cobra.Command, which *trailFlags, e *eventproof.SpanEntry) error {
	prover, err := which.prover(cmd)
	if err != nil {
		return err
	}
	made, err := prover.Prove(cmd.Context(), e.EntryIndex)
	if err != nil {
		return err
	}
	if made.Leaf != proof.LeafHash([]byte(e.Entry)) {
		return fmt.Errorf("entry %d of the trail's files is another than the relay's", e.EntryIndex)
	}
	e.Trail = string(made.Proof.Marshal())
	return nil
}

// query names the event of an argument and the flags: an id, or the event's file, if there is one
// of this name.
func (f *proveEventFlags) query(arg string) (q eventproof.Query, err error) {
	text, err := os.ReadFile(cmp.Or(f.body, arg))
	e := relay.Event{ID: arg, Body: text}
	switch {
	case f.body == "" && errors.Is(err, fs.ErrNotExist):
		return eventproof.Query{ID: arg, Source: f.source}, nil
	case err != nil:
		return q, fmt.Errorf("read the event: %w", err)
	case f.body == "":
		if e, err = cloudevents.ParseJSON(text); err != nil {
			return q, fmt.Errorf("%s: %w", arg, err)
		}
	}
	q = eventproof.QueryOf(&e)
	q.Source = cmp.Or(f.source, q.Source)
	return q, nil
}

func (f *proveEventFlags) verifyBundle(out io.Writer, args []string) error {
	policy, _, err := f.trust.read()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f.verify)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	bundle, err := eventproof.ParseBundle(text)
	var proven eventproof.Proven
	if err == nil {
		proven, err = bundle.Verify()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.verify, err)
	}
	if len(args) == 1 {
		q, err := f.query(args[0])
		if err == nil {
			err = proven.Matches(q)
		}
		if err != nil {
			return err
		}
	}
	signed, by, err := verify.Entry(*policy, bundle.Trail, bundle.EntryIndex, bundle.Entry)
	if err != nil {
		return fmt.Errorf("%s: %w", f.verify, err)
	}
	if err := sayReceived(out, bundle, &proven); err != nil {
		return err
	}
	return say(out, "the entry is in the log %s, by its signed root over %d entries; cosigned by %d witnesses", printable(signed.Origin), signed.Size, len(by.Witnesses))
}

// sayReceived prints the proven facts, for a person.
func sayReceived(w io.Writer, b *eventproof.Bundle, p *eventproof.Proven) error {
	return say(w, "event %s of %s was received at %s: event %d of the record at position %d, in the span from %d to %d (%d events), entry %d of the trail",
		printable(p.Event.ID), printable(p.Event.Source), p.Event.Received.UTC().Format(time.RFC3339Nano),
		b.Event, b.Position, p.Span.First, p.Span.Last, p.Span.Events, b.EntryIndex)
}

func newTrailListSpan() *cobra.Command {
	var which trailFlags
	var path string
	return command("trail list-span", &which.relayFlags, func(cmd *cobra.Command, args []string, client *console.Client) error {
		return writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error {
			first := true
			return client.ListSpan(cmd.Context(), console.ListSpan{Entry: indexOf(args[0])}, func(line json.RawMessage) (err error) {
				if first {
					line, err = provenHead(cmd, &which, line)
					first = false
				}
				if err == nil {
					_, err = w.Write(append(line, '\n'))
				}
				return err
			})
		})
	}, text(&path, "file", "write to a new `FILE` instead of standard output"), takes(oneIndex))
}

// provenHead adds the entry's proof to the first line.
func provenHead(cmd *cobra.Command, which *trailFlags, line []byte) ([]byte, error) {
	head, err := eventproof.ParseHead(line)
	if err == nil {
		err = proveEntry(cmd, which, &head.SpanEntry)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(head)
}

func newTrailVerifySpan() *cobra.Command {
	var trust trustFlags
	cmd := command("trail verify-span", alone(""), func(cmd *cobra.Command, args []string, _ alone) error {
		trusted, _, err := trust.read()
		if err != nil {
			return err
		}
		return verifySpan(cmd.OutOrStdout(), *trusted, args[0], args[1:])
	}, &trust, takes(func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return errors.New("give the LIST of a span, and at least one FILE with its events")
		}
		return nil
	}))
	cmd.MarkFlagsOneRequired("key", "policy")
	return cmd
}

func verifySpan(out io.Writer, trusted proof.Policy, list string, copies []string) error {
	var files []io.Reader
	for _, path := range append([]string{list}, copies...) {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("verify the span: %w", err)
		}
		defer func() { _ = f.Close() }()
		files = append(files, f)
	}
	check := func(h *eventproof.ListHead) error {
		_, _, err := verify.Entry(trusted, h.Trail, h.EntryIndex, h.Entry)
		return err
	}
	c, err := eventproof.Compare(files[0], check, files[1:]...)
	if err != nil {
		return fmt.Errorf("verify the span: %w", err)
	}
	if err := json.NewEncoder(out).Encode(c); err != nil {
		return err
	}
	if absent := c.Events - c.Found; absent > 0 {
		return fmt.Errorf("%d of the %d events of the span are not in the files, or were changed", absent, c.Events)
	}
	return nil
}
