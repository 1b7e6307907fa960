package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// verifyFlags are those of 'trail verify'.
type verifyFlags struct {
	trailFlags
	kafka         kafkaFlags
	proof, record string
	events        string
	trust         trustFlags
	known         []string
	output        outputFlag
}

func (p Program) newTrailVerify() *cobra.Command {
	f := &verifyFlags{trailFlags: *p.trail(), output: forms("text", "json")}
	return command("trail verify", alone(""), func(cmd *cobra.Command, _ []string, _ alone) error { return f.run(cmd) }, f)
}

func (f *verifyFlags) addTo(cmd *cobra.Command) {
	withFlags(cmd, &f.kafka, text(&f.folder, "dir", "a `DIR` with the trail, or with one log of it"),
		text(&f.events, "from-events", "a `FILE` of events as JSON lines; - for standard input"),
		text(&f.proof, "proof", "a .tlog-proof `FILE`"), text(&f.record, "record", "the `FILE` with the entry, with --proof"), &f.trust,
		texts(&f.known, "checkpoint", "a `FILE` with a signed checkpoint known from elsewhere; again for more"), &f.output)
	f.addFilesTo(cmd, "the `URL` of the trail, or of one log of it", "the relay is stopped: read its log too", "dir", "from-events", "from-kafka", "proof")
	cmd.MarkFlagsMutuallyExclusive("url", "dir", "from-events", "from-kafka", "proof", "offline")
	cmd.MarkFlagsRequiredTogether("proof", "record")
}

func (f *verifyFlags) run(cmd *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.proof != "" {
		return f.runProof(cmd, o.Policy)
	}
	shown := newProgress(cmd.ErrOrStderr())
	o.Progress = shown.entries
	report, err := f.verify(cmd, shown, o)
	shown.end()
	if err != nil {
		return err
	}
	report.RefuseEmpty()
	err = printAs(cmd.OutOrStdout(), f.output.isJSON(), report, printVerdicts)
	switch {
	case err != nil:
		return err
	case len(report.Integrity.Findings) > 0:
		return errReported
	case !report.Trusted || !report.Integrity.Holds || !report.Completeness.Holds:
		return errNotShown
	}
	return nil
}

// options reads the files to hold the trail against.
func (f *verifyFlags) options() (o verify.Options, err error) {
	if o.Policy, _, err = f.trust.read(); err != nil {
		return o, err
	}
	for _, name := range f.known {
		note, err := os.ReadFile(name)
		if err == nil {
			if _, err = proof.ReadCheckpoint(note); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		if err != nil {
			return o, fmt.Errorf("read the known checkpoint: %w", err)
		}
		o.Known = append(o.Known, note)
	}
	return o, nil
}

// verify reads the trail named by the flags.
func (f *verifyFlags) verify(cmd *cobra.Command, shown *progress, o verify.Options) (verify.Report, error) {
	ctx := cmd.Context()
	switch {
	case f.kafka.topic != "":
		return f.kafka.verify(cmd, shown, o)
	case f.events != "":
		return f.verifyEvents(ctx, o)
	case f.offline:
		return f.verifyStopped(ctx, o)
	case f.url == "" && f.folder == "":
		dir, err := f.dir()
		if err != nil {
			return verify.Report{}, err
		}
		if f.isStopped(dir) {
			o.Now = time.Now()
			return f.verifyStopped(ctx, o)
		}
	}
	if f.folder == "" {
		o.Live, o.Now = true, time.Now()
	} else {
		o.Whole = !tiles.HasArchived(f.folder)
		if here, err := filepath.Abs(f.folder); err == nil {
			o.Here = []string{here, filepath.Dir(here)} // it may be one log of a trail
		}
	}
	if f.url != "" {
		o.Workers = 8
	}
	fetch, dirs, err := f.find(cmd)
	if err != nil {
		return verify.Report{}, err
	}
	return verify.Trail(ctx, fetch, dirs, o)
}

// isStopped reports whether a data directory has the trail's log, and no relay that uses it: then
// the files are held against the log, since nobody brings them up to date.
func (f *verifyFlags) isStopped(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, app.StoreDir, audit.EntriesLog))
	_, loaded := f.load()
	return err == nil && loaded == nil && !durable.IsLocked(dir)
}

func (f *verifyFlags) verifyEvents(ctx context.Context, o verify.Options) (_ verify.Report, err error) {
	in := io.ReadCloser(os.Stdin)
	if f.events != "-" {
		if in, err = os.Open(f.events); err != nil {
			return verify.Report{}, fmt.Errorf("read the events: %w", err)
		}
		defer func() { _ = in.Close() }()
	}
	return verify.Events(ctx, in, o)
}

// proven is the answer of --output json on one proof.
type proven struct {
	Origin    string   `json:"origin"`
	Index     int64    `json:"index"` // in its log
	Size      int64    `json:"size"`
	Key       string   `json:"key"`
	Witnesses []string `json:"witnesses,omitempty"`
}

// runProof verifies one proof, of the record in a file.
func (f *verifyFlags) runProof(cmd *cobra.Command, policy *proof.Policy) error {
	if err := f.trust.needed("a proof"); err != nil {
		return err
	}
	file, err := os.ReadFile(f.proof)
	if err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	record, err := os.ReadFile(f.record)
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	index, c, by, err := verify.Proof(*policy, file, record)
	if err != nil {
		return fmt.Errorf("%s: %w", f.proof, err)
	}
	made := proven{Origin: c.Origin, Index: index, Size: c.Size, Key: by.Log}
	for _, w := range by.Witnesses {
		made.Witnesses = append(made.Witnesses, w.Witness)
	}
	return printAs(cmd.OutOrStdout(), f.output.isJSON(), made, func(p *page, made proven) {
		p.line("%s is entry %d of the log %s, proven against its signed root over %d entries; cosigned by %d witnesses",
			f.record, made.Index, printable(made.Origin), made.Size, len(made.Witnesses))
	})
}

// verifyStopped verifies the logs of a stopped relay, and its files for public tools.
func (f *verifyFlags) verifyStopped(ctx context.Context, o verify.Options) (verify.Report, error) {
	cfg, err := f.load()
	if err != nil {
		return verify.Report{}, err
	}
	report, unnamed, err := verifyLog(ctx, cfg)
	if err != nil {
		return verify.Report{}, err
	}
	return verify.Stopped(ctx, filepath.Join(cfg.DataDir, tiles.Dir), report, unnamed, o)
}

// mostShownApart bounds the imitations shown to a person; --output json has more of them.
const mostShownApart = 10

// printVerdicts prints the report for a person.
func printVerdicts(p *page, r verify.Report) {
	for _, l := range r.Logs {
		p.line("%s", logText(l))
	}
	switch {
	case r.Entries == 0 && len(r.Integrity.Findings) == 0:
		p.line("integrity: NOT SHOWN: nothing was checked, as no entry is under a signed root")
	case r.Trusted:
		p.verdict("integrity", r.Integrity, "every entry is the signed one", "BROKEN")
	default:
		p.verdict("integrity", r.Integrity, "the files agree with each other", "BROKEN")
	}
	p.verdict("completeness", r.Completeness, "no gap", "NOT SHOWN")
	p.line("%d entries and %d checkpoints were checked", r.Entries, r.Checkpoints)
	for _, a := range r.Archived {
		p.line("%d entries are archived, and were checked by their hashes only: %d to %d, moved to %s: verify that folder with --dir", a.To-a.From+1, a.From, a.To, printable(a.Where))
	}
	for _, found := range r.Settled {
		p.line("settled: %s", printable(found.String()))
	}
	if r.Apart.Events > 0 {
		p.line("%d events look like the trail's and are none of it: they count for nothing, and against nothing", r.Apart.Events)
		for _, found := range r.Apart.Findings[:min(len(r.Apart.Findings), mostShownApart)] {
			p.line("  %s", printable(found.String()))
		}
	}
	if !r.Trusted {
		p.line("NOTHING IS PROVEN except that the files agree with each other: without --key or --policy, no signature was checked,\n" +
			"and whoever can write the files could have made all of them.")
	}
}

func logText(l verify.Log) string {
	if l.Size == 0 {
		return fmt.Sprintf("log %s: no entry is under a signed root", printable(l.Origin))
	}
	text := fmt.Sprintf("log %s: entries %d to %d, root %s", printable(l.Origin), l.Base, l.Base+l.Size-1, l.Root)
	if !l.Signed.IsZero() {
		text += ", signed at " + moment(l.Signed)
	}
	if len(l.Witnesses) > 0 {
		text += ", cosigned by " + printable(strings.Join(l.Witnesses, ", "))
	}
	return text
}

func (p *page) verdict(name string, v verify.Verdict, good, bad string) {
	if v.Holds {
		p.line("%s: holds: %s", name, good)
		return
	}
	p.line("%s: %s: %d findings", name, bad, int64(len(v.Findings))+v.More)
	for _, found := range v.Findings {
		p.line("  %s", printable(found.String()))
	}
	if v.More > 0 {
		p.line("  and %d more", v.More)
	}
}
