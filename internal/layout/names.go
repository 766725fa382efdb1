package layout

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

const (
	// maxLabelValue is the API server's bound on a label's value.
	maxLabelValue = 63
	// maxPodName is shorter than the API server's bound of 253: the kubelet makes a
	// folder <namespace>_<pod>_<uid> for a pod's logs, and no file system takes a
	// name of more than 255 bytes. The namespace may have 63, the UID has 36.
	maxPodName = 255 - (63 + 1) - (1 + 36)
)

// LabelValue makes a label's value of an object's name, which may be longer than a
// label allows: a longer one is cut, and ends in characters that follow from the
// whole of it.
func LabelValue(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	return join(name, "-"+Digest(name), maxLabelValue)
}

// PodName makes a pod's name of an owner's name between a prefix and a suffix, which
// are kept whole.
func PodName(prefix, name, suffix string) string {
	return join(prefix+name, suffix, maxPodName)
}

func join(stem, suffix string, most int) string {
	if over := len(stem) + len(suffix) - most; over > 0 {
		stem = strings.TrimRight(stem[:len(stem)-over], "-.")
	}
	return stem + suffix
}

// Digest gives five characters, lower case letters and digits, that follow from a
// text.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:5]
}
