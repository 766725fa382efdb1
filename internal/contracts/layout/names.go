package layout

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

const (
	// maxLabelValue and maxName are the API server's limits. The former is also that of a DNS label.
	maxLabelValue = 63
	maxName       = 253
	// maxPodName is shorter: the kubelet creates a folder <namespace>_<pod>_<uid> for a pod's logs, and no file system
	// permits a name of more than 255 bytes. The namespace may have 63, the UID has 36.
	maxPodName = 255 - (63 + 1) - (1 + 36)
)

// LabelValue returns a label value for an object's name. A name that is too long is truncated, and ends in a digest of
// the whole name.
func LabelValue(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	return join(name, "-"+Digest(name), maxLabelValue)
}

// PodName returns a pod's name from an owner's name between a prefix and a suffix, which are never truncated.
func PodName(prefix, name, suffix string) string {
	return join(prefix+name, suffix, maxPodName)
}

// HostName returns a name for a Service, or for a pod with a host name: without dots, and no longer than a label. A
// changed name ends in a digest of text, which must be different for each name.
func HostName(name, text string) string {
	if len(name) <= maxLabelValue && !strings.Contains(name, ".") {
		return name
	}
	return join(strings.ReplaceAll(name, ".", "-"), "-"+HexDigest(text, 8), maxLabelValue)
}

// ReplicaName returns a name of one of an owner's many objects, which is a label value. text distinguishes it.
func ReplicaName(owner, text string) string {
	return join(owner, "-"+Digest(text), maxLabelValue)
}

// StateClaimName returns the name of an owner's state claim.
func StateClaimName(owner, uid string) string {
	return join("persistent-state-for-"+owner, "-"+LongDigest(uid), maxLabelValue)
}

// volumeName returns the name of a pod's volume for a VMI's, which may have the full length itself. A truncated name has
// a different start, so that no other VMI volume gets it.
func volumeName(prefix, volume string) string {
	if len(prefix)+len(volume) <= maxLabelValue {
		return prefix + volume
	}
	return join("long-"+prefix+volume, "-"+LongDigest(volume), maxLabelValue)
}

// RevisionName returns the name of a ControllerRevision. The suffix makes it unique.
func RevisionName(stem, suffix string) string { return join(stem, suffix, maxName) }

func join(stem, suffix string, most int) string {
	if over := len(stem) + len(suffix) - most; over > 0 {
		stem = strings.TrimRight(stem[:len(stem)-over], "-.")
	}
	return stem + suffix
}

// Digest returns a digest of text: five lower case letters and digits.
func Digest(text string) string { return base32Digest(text, 5) }

// LongDigest returns a digest of ten characters, for names that must distinguish one owner's objects from all others'.
func LongDigest(text string) string { return base32Digest(text, 10) }

func base32Digest(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
}

// HexDigest returns a digest of length hexadecimal digits, at most 64.
func HexDigest(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:length]
}
