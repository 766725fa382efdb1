package launcherpod

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

const (
	namePrefix         = "virt-launcher-"
	provisioningPrefix = "virt-provisioning-"
)

// Name is the launcher pod's name. It follows from the VMI's name and UID, so
// that creating it twice, on whatever stale view, gives one pod, and a VMI of
// the same name created later has another.
func Name(vmi *v1.VirtualMachineInstance) string { return podName(namePrefix, vmi) }

// ProvisioningName is the provisioning pod's name, by the same rule.
func ProvisioningName(vmi *v1.VirtualMachineInstance) string { return podName(provisioningPrefix, vmi) }

func podName(prefix string, vmi *v1.VirtualMachineInstance) string {
	suffix := "-" + digest(string(vmi.UID))
	stem := vmi.Name
	if over := len(prefix) + len(stem) + len(suffix) - validation.DNS1123SubdomainMaxLength; over > 0 {
		stem = strings.TrimRight(stem[:len(stem)-over], "-.")
	}
	return prefix + stem + suffix
}

// labelValue makes a label's value of a VMI's name, which may be longer than a
// label allows.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	suffix := "-" + digest(name)
	stem := strings.TrimRight(name[:validation.LabelValueMaxLength-len(suffix)], "-.")
	return stem + suffix
}

// digest gives five characters that are lower case letters and digits.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:5]
}
