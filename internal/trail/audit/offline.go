package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// VerifyOffline is [Trail.Verify] of a trail without a relay. Of o it takes the KeySource and the
// Evidence. Unnamed are the problems and the restored entries that the trail does not name yet; a
// start would name them. A missing key, or one other than the signer's, is a problem if anything
// was signed.
func VerifyOffline(ctx context.Context, o Options, trail *Reader) (report Report, unnamed []Problem, err error) {
	key, keyErr := o.loadKey()
	r := &examiner{Reader: trail, options: o, key: key, marked: isMarked(key, o.markFile()), pinExpected: keyErr == nil, still: true}
	x, err := r.examine(ctx)
	if err != nil {
		return Report{}, nil, fmt.Errorf("verify audit trail: %w", err)
	}
	if o.KeyFile != "" || keyErr == nil { // nobody but the relay needs to have another
		x.checkKey(key, keyErr)
	}
	return x.report, x.named.unnamed(slices.Concat(x.report.Problems, x.report.Restored)), nil
}

func (x *examination) checkKey(key keyPair, err error) {
	last := x.gens[len(x.gens)-1]
	const goesOn = "the next start begins a new generation, unless it is put back"
	switch {
	case x.knownEnd() == 0 && x.keptSeq == 0 && x.pinText == nil: // nothing was signed
	case errors.Is(err, fs.ErrNotExist):
		x.problem("key", 0, 0, "the signing key is gone; %s", goesOn)
	case err != nil:
		x.problem("key", 0, 0, "the signing key: %v; %s", err, goesOn)
	case last.PublicKey != "" && !key.isOwn(last.PublicKey):
		x.problem("key", 0, 0, "the signing key is not the one that signed before, %s; %s", last.PublicKey, goesOn)
	}
}
