package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// proveFlags are those of 'trail prove'.
type proveFlags struct {
	trailFlags
	chosen      entryFlags
	site        siteFlags
	export, out string
	archives    []string
	given       trustFlags
}

func (p Program) newTrailProve() *cobra.Command {
	f := &proveFlags{trailFlags: *p.trail()}
	cmd := &cobra.Command{
		Use:   "prove INDEX... | FILTER --dir DIR",
		Short: "Write proofs of entries, for anybody to verify without a relay",
		Long: `Writes for each chosen entry two files into a folder: INDEX.json, the entry as the trail
keeps it, and INDEX.tlog-proof, its proof against the newest signed checkpoint (C2SP
tlog-proof). A third file, trail.policy, names the trusted keys (C2SP tlog-policy): those of
--policy or --key, or else the trail's own, with the witnesses and the quorum of --config.
Each proof is verified with it. A verifier must know these keys to be yours by another way.

The entries are named by index, or chosen by the flags of 'trail list'; those need the relay
on this machine. It reads the relay's files for public tools, in its data directory; with
--url a relay's /tlog/; with --export an export. A guarded /tlog/ wants --token-file FILE,
or the environment variable AUDITRELAY_TLOG_TOKEN.

  auditrelay trail verify --proof 17.tlog-proof --record 17.json --policy trail.policy

An entry moved out by 'trail archive' is read with --archive DIR. Without it, its proof is
of the hash alone, and INDEX.json is left out: write it from the archive later.

Exit codes: 0 all are proven, 1 not all can be proven, or failed, 64 wrong usage.`,
		Example: `  auditrelay trail prove 17 18 --config relay.yaml --dir proofs --policy trail.policy
  auditrelay trail prove --config relay.yaml --severity high --since 2026-03-01 --dir proofs
  auditrelay trail prove 17 --url https://relay.example/tlog/ --dir proofs
  auditrelay trail prove 17 --url https://relay.example/tlog/ --token-file tlog.token --dir proofs`,
		Args: indexes,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.addTo(cmd)
	return cmd
}

// indexes takes indexes of entries.
func indexes(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if err := oneIndex(cmd, []string{arg}); err != nil {
			return err
		}
	}
	return nil
}

func (f *proveFlags) addTo(cmd *cobra.Command) {
	f.addFilesTo(cmd, "the relay is stopped")
	flags := cmd.Flags()
	f.site.addTo(cmd, "the `URL` of the trail")
	flags.StringVar(&f.export, "export", "", "a `DIR` with an export of the trail")
	flags.StringArrayVar(&f.archives, "archive", nil, "a `DIR` with an archive of the trail; again for more")
	flags.StringVar(&f.out, "dir", "", "write into the folder `DIR`")
	f.given.addTo(cmd, ": verify each proof")
	f.chosen.addTo(cmd, 0)
	cmd.MarkFlagsMutuallyExclusive("url", "export", "data-dir")
	needFlags(cmd, "dir")
	before(cmd, func() error {
		if f.site.url == "" && f.export == "" && f.dataDir == "" && f.config == "" {
			return errors.New("name the trail: --url, --export, --config or --data-dir")
		}
		return nil
	})
}

func (f *proveFlags) run(cmd *cobra.Command, args []string) error {
	given, err := f.given.read()
	if err != nil {
		return err
	}
	chosen, err := f.indexes(cmd, args)
	if err != nil {
		return err
	}
	prover, err := f.prover(cmd)
	if err != nil {
		return err
	}
	if err := durable.MakeDir(f.out); err != nil {
		return err
	}
	trust, err := f.trust(cmd, given, prover)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(f.out, "trail.policy"), trust.text); err != nil {
		return err
	}
	var failed error
	written := 0
	for _, index := range chosen {
		err := f.prove(cmd, prover, trust, index)
		if err == nil {
			written++
		}
		failed = errors.Join(failed, err)
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%d of %d proofs written to %s\n", written, len(chosen), f.out); err != nil {
		return err
	}
	return failed
}

// indexes are those of the arguments, or of the chosen entries.
func (f *proveFlags) indexes(cmd *cobra.Command, args []string) (list []int64, err error) {
	for _, arg := range args {
		index, _ := strconv.ParseInt(arg, 10, 64) // checked before
		list = append(list, index)
	}
	if len(list) > 0 {
		return list, nil
	}
	if f.site.url != "" || f.export != "" {
		return nil, errors.New("name the entries by INDEX; a FILTER needs the relay on this machine, --config or --data-dir")
	}
	list = []int64{}
	err = f.asks(func(cmd *cobra.Command, _ []string, source trailSource) error {
		return source.Entries(cmd.Context(), f.chosen.filter, func(e timeline.Entry) error {
			list = append(list, e.Index)
			return nil
		})
	})(cmd, nil)
	return list, err
}

func (f *proveFlags) prover(cmd *cobra.Command) (*verify.Prover, error) {
	ctx := cmd.Context()
	if f.site.url != "" {
		fetch, dirs, err := f.site.open(cmd)
		if err != nil {
			return nil, err
		}
		return verify.NewProver(ctx, fetch, dirs, f.archives)
	}
	dir := f.export
	if dir == "" {
		data, err := f.dir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(data, tiles.Dir)
	}
	return proverOf(ctx, dir, f.archives)
}

// proverOf proves entries from the files in a folder.
func proverOf(ctx context.Context, dir string, archives []string) (*verify.Prover, error) {
	fetch, dirs, err := verify.Folder(dir)
	if err != nil {
		return nil, err
	}
	return verify.NewProver(ctx, fetch, dirs, archives)
}

// prove writes the files of one entry. The proof comes last: next to each one stands its
// record, whatever line a crash hits.
func (f *proveFlags) prove(cmd *cobra.Command, prover *verify.Prover, trust trust, index int64) error {
	made, err := prover.Prove(cmd.Context(), index)
	if err != nil {
		return err
	}
	own, err := trust.of(made.Origin)
	if err == nil {
		_, _, err = made.Proof.Verify(made.Leaf, own)
	}
	if err != nil {
		return fmt.Errorf("prove entry %d: %w", index, err)
	}
	name := filepath.Join(f.out, strconv.FormatInt(index, 10))
	if made.Record == nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "entry %d is not in the trail's files, and proven by its hash only; --archive DIR gives the entry too\n", index)
	} else {
		err = durable.WriteFile(name+".json", made.Record)
	}
	if err != nil {
		return err
	}
	return durable.WriteFile(name+proof.Extension, made.Proof.Marshal())
}
