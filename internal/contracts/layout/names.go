package layout

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

const (
	// maxLabelValue is the API server's bound on a label's value, and on a DNS label.
	maxLabelValue = 63
	// maxName is the API server's bound on a name.
	maxName = 253
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

// HostName makes a name that can be that of a Service, or of a pod that is known by its
// name in the network: without dots, and no longer than a label. One that is changed for
// it ends in characters that follow from the text, which must be another for each name.
func HostName(name, text string) string {
	if len(name) <= maxLabelValue && !strings.Contains(name, ".") {
		return name
	}
	return join(strings.ReplaceAll(name, ".", "-"), "-"+HexDigest(text, 8), maxLabelValue)
}

// ReplicaName makes the name of an object that is one of many of an owner's, and that
// others must be able to use in a label; text tells it from the others.
func ReplicaName(owner, text string) string {
	return join(owner, "-"+Digest(text), maxLabelValue)
}

// StateClaimName makes the name of the claim that the state of an owner is kept on.
func StateClaimName(owner, uid string) string {
	return join("persistent-state-for-"+owner, "-"+LongDigest(uid), maxLabelValue)
}

// volumeName makes the name of a pod's volume of that of a VMI's, which may be as long itself. One that is cut begins in
// another way than those that are not, so that no VMI volume's name makes it.
func volumeName(prefix, volume string) string {
	if len(prefix)+len(volume) <= maxLabelValue {
		return prefix + volume
	}
	return join("long-"+prefix+volume, "-"+LongDigest(volume), maxLabelValue)
}

// RevisionName makes the name of a ControllerRevision, whose suffix tells it from all others.
func RevisionName(stem, suffix string) string { return join(stem, suffix, maxName) }

func join(stem, suffix string, most int) string {
	if over := len(stem) + len(suffix) - most; over > 0 {
		stem = strings.TrimRight(stem[:len(stem)-over], "-.")
	}
	return stem + suffix
}

// Digest gives five characters, lower case letters and digits, that follow from a
// text.
func Digest(text string) string { return base32Digest(text, 5) }

// LongDigest gives ten of them, for names by which one owner's objects are told from
// all others'.
func LongDigest(text string) string { return base32Digest(text, 10) }

func base32Digest(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
}

// HexDigest gives up to 64 characters, hexadecimal digits, that follow from a text.
func HexDigest(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:length]
}
