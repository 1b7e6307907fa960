package tiles

import (
	"context"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// Check has every file of the log read back and held against its newest checkpoint: see
// [verify.Files]. errDamaged names the first one that is lost, or unlike the signed tree. Of
// archived entries only the hashes are checked. It rests after each bundle for rest.
func (l Log) Check(ctx context.Context, publicKey string, rest time.Duration) error {
	c, err := l.signed(publicKey)
	if err != nil {
		return err
	}
	// A keeper may write meanwhile, and a crash may have left a history ahead of its checkpoint.
	found, err := verify.Files(ctx, l.dir, c.Origin, publicKey, verify.Options{Live: true, Stopped: true, Workers: 1, Rest: rest})
	if err != nil {
		return err
	}
	archived := proof.BaseOf(c.Origin) + l.archivedEnd()
	for _, f := range found {
		if f.OfFiles() && (!f.OfBundle() || f.To >= archived) {
			return fmt.Errorf("%w: %s", errDamaged, f)
		}
	}
	return nil
}
