package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName is how long the name of a Service may be.
const maxName = 63

// UploadName is the name of the worker pod of kind upload for a claim, and of
// the Service that leads to it on UploadPort. A claim's name may have dots and
// be long, a Service's may not: what does not fit is told apart by a hash.
func UploadName(claim string) string {
	name := "cdi-upload-" + claim
	if len(name) <= maxName && !strings.Contains(name, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(claim))
	hash := hex.EncodeToString(sum[:4])
	name = strings.ReplaceAll(name, ".", "-")
	if longest := maxName - len(hash) - 1; len(name) > longest {
		name = strings.TrimRight(name[:longest], "-")
	}
	return name + "-" + hash
}
