package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

func newTrailListSpan() *cobra.Command {
	var which relayFlags
	var path string
	var open bool
	cmd := &cobra.Command{
		Use:   "list-span INDEX",
		Short: "Write the list of a span: the hashes of its events",
		Long: `Writes the list of a span as JSON lines: its entry in the audit trail (INDEX, of the type
events.span) with its proof, then each record with the salted hashes of its events; they give
the entry's root, and tell nothing about the events.

With --open it also gives what is needed to compare events with the hashes. Keep such a list
together with a full copy of the events: 'auditrelay trail verify-span' then names missing and
changed events at any later time, without the journal. Whoever has an open list can confirm a
guess at an event, for instance at what a redacted copy hides, so keep it as confidential as
the events themselves.

The journal must still have all records of the span: see 'auditrelay trail prove-event'.
` + whichRelay + `

Exit codes: 0 written, 1 failed, 64 wrong usage.`,
		Example: `  auditrelay trail list --config relay.yaml --type events.span
  auditrelay trail list-span 17 --open --config relay.yaml --file span-17.jsonl`,
		Args: oneIndex,
		RunE: func(cmd *cobra.Command, args []string) error {
			index, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return err
			}
			client, err := which.client()
			if err != nil {
				return err
			}
			return writeTo(path, cmd.OutOrStdout(), func(w io.Writer) error {
				first := true
				return client.ListSpan(cmd.Context(), console.ListSpan{Entry: index, Open: open}, func(line json.RawMessage) (err error) {
					if first {
						line, err = provenHead(cmd.Context(), &which, line)
						first = false
					}
					if err == nil {
						_, err = w.Write(append(line, '\n'))
					}
					return err
				})
			})
		},
	}
	which.addTo(cmd)
	cmd.Flags().BoolVar(&open, "open", false, "write a list for 'auditrelay trail verify-span', as confidential as the events")
	cmd.Flags().StringVar(&path, "file", "", "write to a new `FILE` instead of standard output")
	return cmd
}

// provenHead adds the entry's proof to the first line.
func provenHead(ctx context.Context, which *relayFlags, line []byte) ([]byte, error) {
	head, err := eventproof.ParseHead(line)
	if err == nil {
		head.Trail, err = entryProof(ctx, which, head.EntryIndex, head.Entry)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(head)
}

func newTrailVerifySpan() *cobra.Command {
	var trust trustFlags
	cmd := &cobra.Command{
		Use:   "verify-span LIST FILE...",
		Short: "Compare a full copy of a span's events with its list",
		Long: `Holds the open list of a span (see 'auditrelay trail list-span') against the root in its entry,
the entry against a signed checkpoint of the trail, by --key or --policy (C2SP tlog-policy),
and then looks for each event of the list in the files: CloudEvents in JSON lines, as the
file sink writes them. Order, repeated and further events do not matter. A changed event
counts as absent. A sink with match or redact has no full copy.

It prints the result as JSON, with the places of absent events.

Exit codes: 0 the files have all events, 1 not all of them, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail verify-span span-17.jsonl archive/events-*.jsonl --policy trail.policy`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("give the LIST of a span, and at least one FILE with its events")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			trusted, err := trust.read()
			if err != nil {
				return err
			}
			return verifySpan(cmd.OutOrStdout(), *trusted, args[0], args[1:])
		},
	}
	trust.addTo(cmd, "")
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
