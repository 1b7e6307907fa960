package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// proveFlags are those of 'trail prove'.
type proveFlags struct {
	trailFlags
	chosen entryFlags
	out    string
	given  trustFlags
}

func (p Program) newTrailProve() *cobra.Command {
	f := &proveFlags{trailFlags: *p.trail(), given: trustFlags{when: ": verify each proof"}}
	return command("trail prove", alone(""), func(cmd *cobra.Command, args []string, _ alone) error { return f.run(cmd, args) }, f, takes(indexes))
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
	withFlags(cmd, text(&f.folder, "export", "a `DIR` with an export of the trail"),
		text(&f.out, "dir", "write into the folder `DIR`"), &f.given, &f.chosen, needed{"dir"})
	f.addFilesTo(cmd, "the `URL` of the trail", "the relay is stopped", "export")
}

func (f *proveFlags) run(cmd *cobra.Command, args []string) error {
	given, text, err := f.given.read()
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
	var trust verify.Trust
	if given != nil {
		trust = verify.Trust{Text: text, Policy: *given}
	} else if trust, err = f.ownTrust(cmd, prover); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(f.out, "trail.policy"), trust.Text); err != nil {
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
	if err := say(cmd.OutOrStdout(), "%d of %d proofs written to %s", written, len(chosen), f.out); err != nil {
		return err
	}
	return failed
}

// indexes are those of the arguments, or of the chosen entries.
func (f *proveFlags) indexes(cmd *cobra.Command, args []string) (list []int64, err error) {
	for _, arg := range args {
		list = append(list, indexOf(arg))
	}
	if len(list) > 0 {
		return list, nil
	}
	if f.url != "" || f.folder != "" {
		return nil, errors.New("name the entries by INDEX; a FILTER needs the relay on this machine, --config or --data-dir")
	}
	list = []int64{}
	err = ask(cmd, &f.trailFlags, func(source trailSource) error {
		return source.Entries(cmd.Context(), f.chosen.filter, func(e timeline.Entry) error {
			list = append(list, e.Index)
			return nil
		})
	})
	return list, err
}

// prove writes the files of one entry. The proof comes last: next to each one stands its
// record, whatever line a crash hits.
func (f *proveFlags) prove(cmd *cobra.Command, prover *verify.Prover, trust verify.Trust, index int64) error {
	made, err := trust.Prove(cmd.Context(), prover, index)
	if err != nil {
		return err
	}
	name := filepath.Join(f.out, strconv.FormatInt(index, 10))
	if made.Record == nil {
		err = say(cmd.ErrOrStderr(), "entry %d is not in the trail's files, and proven by its hash only; --export ARCHIVE gives the entry too", index)
	} else {
		err = durable.WriteFile(name+".json", made.Record)
	}
	if err != nil {
		return err
	}
	return durable.WriteFile(name+proof.Extension, made.Proof.Marshal())
}

// trustFlags name whom a signature is taken from.
type trustFlags struct{ key, policy, when string }

func (f *trustFlags) addTo(cmd *cobra.Command) {
	withFlags(cmd, text(&f.key, "key", "the log's verifier `KEY`, NAME+HASH+KEY, or a file with it"+f.when),
		text(&f.policy, "policy", "a `FILE` with the trusted logs and witnesses (C2SP tlog-policy)"+f.when))
	cmd.MarkFlagsMutuallyExclusive("key", "policy")
}

// needed refuses to verify without anybody to trust.
func (f *trustFlags) needed(what string) error {
	if f.key == "" && f.policy == "" {
		return errors.New(what + " needs somebody to trust: give --key or --policy")
	}
	return nil
}

// read gives the trust anchor, nil for none, with its text as a file of --policy has it.
func (f *trustFlags) read() (*proof.Policy, []byte, error) {
	if f.policy != "" {
		text, err := os.ReadFile(f.policy)
		if err != nil {
			return nil, nil, fmt.Errorf("read the policy: %w", err)
		}
		p, err := proof.ParsePolicy(string(text))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.policy, err)
		}
		return &p, text, nil
	}
	if f.key == "" {
		return nil, nil, nil
	}
	key := f.key
	if text, err := os.ReadFile(key); err == nil {
		key = strings.TrimSpace(string(text))
	}
	p, err := proof.NewPolicy([]proof.Log{{Key: key}}, nil, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("--key: %w", err)
	}
	return &p, []byte("log " + key + "\nquorum none\n"), nil
}

// ownTrust names the trail's own keys, and the configured witnesses.
func (f *proveFlags) ownTrust(cmd *cobra.Command, prover *verify.Prover) (t verify.Trust, err error) {
	var witnesses []proof.Witness
	quorum := 0
	if f.configured(cmd) {
		if witnesses, quorum, err = configuredWitnesses(f.config); err != nil {
			return t, err
		}
	}
	return verify.OwnTrust(prover, witnesses, quorum)
}

// configured: --config is of the relay whose trail is read. A default from the environment
// may be of another one than --url or --export.
func (f *proveFlags) configured(cmd *cobra.Command) bool {
	elsewhere := f.url != "" || f.folder != "" || f.dataDir != ""
	return f.config != "" && (!elsewhere || cmd.Flags().Changed("config"))
}

func configuredWitnesses(file string) ([]proof.Witness, int, error) {
	configured, quorum, err := config.Witnesses(file)
	if err != nil {
		return nil, 0, err
	}
	list := witness.ForPolicy(configured)
	if len(list) > 0 && (quorum < 1 || quorum > len(list)) {
		return nil, 0, errors.New(file + ": audit.quorum is not between 1 and the number of audit.witnesses")
	}
	return list, quorum, nil
}
