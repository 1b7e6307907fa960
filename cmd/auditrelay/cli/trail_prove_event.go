package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/relay"
)

// proveEventFlags are those of 'trail prove-event'.
type proveEventFlags struct {
	which  relayFlags
	source string
	body   string
	out    string
	verify string
	trust  trustFlags
}

func newTrailProveEvent() *cobra.Command {
	var f proveEventFlags
	cmd := &cobra.Command{
		Use:   "prove-event ID|FILE",
		Short: "Prove the receipt of an event, and its time",
		Long: `Finds an event in the journal, and writes a bundle with its proof: the event, its way to the
root of its span, the span's entry in the audit trail, and the entry's way to the newest
signed checkpoint (C2SP tlog-proof). The argument is the event's id, or a file with the
event as a CloudEvent in JSON, as the file sink writes it; then source, time of receipt and
body must be the received ones too. Of a Kafka record or a NATS message, give the header
ce_id (ce-id), with ce_source as --source, and its value in the file of --body. Of several
events with an id, it proves the newest.

With --verify it checks a bundle, without a relay, against the log's --key or a --policy (C2SP
tlog-policy). With an argument it also compares the event, as above.

A span ends every 10 minutes (audit.spans in the configuration), so a bundle of an event
just received may have to wait as long. The journal must still have all records of the span:
it keeps them for journal.replay_window (72h) after their delivery, as far as its disk
budget allows. A redacting sink does not have the body as received. The bundle shows this
event only: the hashes of all others in it are salted, so that nobody can guess at them.
` + whichRelay + `

Exit codes: 0 proven, 1 not proven, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail prove-event event-log-1234 --config relay.yaml --file proof.json
  auditrelay trail prove-event event.json --config relay.yaml --file proof.json
  auditrelay trail prove-event event-log-1234 --source /projects/p/environments/e --body value.json --config relay.yaml --file proof.json
  auditrelay trail prove-event event.json --verify proof.json --policy trail.policy`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && f.verify == "" {
				return errors.New("give the ID of one event, or a FILE with the event as a CloudEvent in JSON")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.verify != "" {
				return f.verifyBundle(cmd.OutOrStdout(), args)
			}
			return f.prove(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *proveEventFlags) addTo(cmd *cobra.Command) {
	f.which.addTo(cmd)
	needsRelay := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if f.verify == "" {
			return needsRelay(cmd, args)
		}
		if f.trust == (trustFlags{}) {
			return errors.New("a bundle needs somebody to trust: give --key or --policy")
		}
		return nil
	}
	cmd.Flags().StringVar(&f.source, "source", "", "only an event of this CloudEvents `SOURCE`: /projects/P/environments/E")
	cmd.Flags().StringVar(&f.body, "body", "", "only the event whose body is that of this `FILE`; the argument is its id then")
	cmd.Flags().StringVar(&f.out, "file", "", "write the bundle to a new `FILE` instead of standard output")
	cmd.Flags().StringVar(&f.verify, "verify", "", "check this `BUNDLE` instead, by --key or --policy")
	f.trust.addTo(cmd, ", with --verify")
}

func (f *proveEventFlags) prove(ctx context.Context, out, messages io.Writer, arg string) error {
	query, err := f.query(arg)
	if err != nil {
		return err
	}
	client, err := f.which.client()
	if err != nil {
		return err
	}
	bundle, err := client.ProveEvent(ctx, query)
	if err != nil {
		return err
	}
	proven, err := bundle.Verify() // the written proof holds
	if err != nil {
		return err
	}
	if bundle.Trail, err = entryProof(ctx, &f.which, bundle.EntryIndex, bundle.Entry); err != nil {
		return fmt.Errorf("the event stands in the span of entry %d, but the entry is not proven; if it is a new one, try again in some seconds: %w", bundle.EntryIndex, err)
	}
	if err := writeTo(f.out, out, func(w io.Writer) error { return json.NewEncoder(w).Encode(bundle) }); err != nil {
		return err
	}
	return say(messages, bundle, &proven)
}

// entryProof proves an entry, from the relay's files for public tools.
func entryProof(ctx context.Context, which *relayFlags, index int64, record string) (string, error) {
	dir, err := which.dir()
	if err != nil {
		return "", err
	}
	prover, err := proverOf(ctx, filepath.Join(dir, tiles.Dir), nil)
	if err != nil {
		return "", err
	}
	made, err := prover.Prove(ctx, index)
	if err != nil {
		return "", err
	}
	if made.Leaf != proof.LeafHash([]byte(record)) {
		return "", fmt.Errorf("entry %d of the trail's files is another than the relay's", index)
	}
	return string(made.Proof.Marshal()), nil
}

// query names the event of an argument and the flags.
func (f *proveEventFlags) query(arg string) (q eventproof.Query, err error) {
	if f.body == "" {
		q, err = queryOf(arg)
	} else {
		q, err = queryOfBody(arg, f.body)
	}
	if err == nil && f.source != "" {
		q.Source = f.source
	}
	return q, err
}

// queryOf reads the event's file, if there is one of this name.
func queryOf(arg string) (eventproof.Query, error) {
	e, err := readEvent(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return eventproof.Query{ID: arg}, nil
	}
	if err != nil {
		return eventproof.Query{}, err
	}
	return eventproof.QueryOf(&e), nil
}

func queryOfBody(id, path string) (eventproof.Query, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return eventproof.Query{}, fmt.Errorf("read the body: %w", err)
	}
	return eventproof.QueryOf(&relay.Event{ID: id, Body: body}), nil
}

func readEvent(path string) (relay.Event, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return relay.Event{}, fmt.Errorf("read the event: %w", err)
	}
	e, err := cloudevents.ParseJSON(text)
	if err != nil {
		return relay.Event{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

func (f *proveEventFlags) verifyBundle(out io.Writer, args []string) error {
	policy, err := f.trust.read()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f.verify)
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	bundle, err := eventproof.ParseBundle(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.verify, err)
	}
	proven, err := bundle.Verify()
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
	if err := say(out, bundle, &proven); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "the entry is in the log %s, by its signed root over %d entries; cosigned by %d witnesses\n", printable(signed.Origin), signed.Size, len(by.Witnesses))
	return err
}

// say prints the proven facts, for a person.
func say(w io.Writer, b *eventproof.Bundle, p *eventproof.Proven) error {
	_, err := fmt.Fprintf(w, "event %s of %s was received at %s: event %d of the record at position %d, in the span from %d to %d (%d events), entry %d of the trail\n",
		printable(p.Event.ID), printable(p.Event.Source), p.Event.Received.UTC().Format(time.RFC3339Nano),
		b.Event, b.Position, p.Span.First, p.Span.Last, p.Span.Events, b.EntryIndex)
	return err
}
