package fill

import (
	"crypto/md5"  // users have such sums, and CDI takes them
	"crypto/sha1" // as above
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"strings"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New,
}

type checksum struct {
	hash.Hash
	name, want string
}

// parseChecksum parses "<algorithm>:<hex>". An empty text gives a checksum without Hash.
func parseChecksum(text string) (checksum, error) {
	if text == "" {
		return checksum{}, nil
	}
	name, want, _ := strings.Cut(text, ":")
	name, want = strings.ToLower(name), strings.ToLower(want)
	algorithm, known := algorithms[name]
	if !known {
		return checksum{}, job.Faultf(transfer.ReasonChecksumMismatch, "the checksum %q is of no known kind: use sha256:, sha512:, sha1: or md5: and the sum in hexadecimal", text)
	}
	sum := algorithm()
	if raw, err := hex.DecodeString(want); err != nil || len(raw) != sum.Size() {
		return checksum{}, job.Faultf(transfer.ReasonChecksumMismatch, "the checksum %q is not the %d hexadecimal digits of a %s sum", text, 2*sum.Size(), name)
	}
	return checksum{Hash: sum, name: name, want: want}, nil
}

func (c checksum) verify() error {
	if c.Hash == nil {
		return nil
	}
	if is := hex.EncodeToString(c.Sum(nil)); is != c.want {
		return job.Faultf(transfer.ReasonChecksumMismatch, "the content's %s sum is %s, and %s was asked for: the source has another file, or a damaged one", c.name, is, c.want)
	}
	return nil
}
