// Package selinux holds the rules about SELinux contexts: how one is written, which
// part of it a pod may be given, and which pods are given one.
//
// It is pure: it must not read a process's context or a file's label, which is the work of
// package nodeselinux in virt-handler, and it must not import a client.
package selinux

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxLength bounds a context. The longest that a container runtime gives out, with a
// hundred categories, is shorter.
const maxLength = 512

// Limits of the policies that distributions ship.
const (
	maxSensitivity = 15
	maxCategory    = 1023
)

// None is what KubeVirt writes into a VMI's status on a node without SELinux.
const None = "none"

// Context is what SELinux knows a process by.
type Context struct {
	User, Role, Type string
	// Level is one level (s0:c1,c2) or a range of two (s0-s0:c0.c1023).
	Level string
}

// identifier is a user, a role or a type. Types of policy modules in CIL have dots.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// ValidType reports whether text is the name of a type.
func ValidType(text string) bool { return identifier.MatchString(text) }

// ForContainers reports whether a type is one for containers by its name: one of those that Pod Security allows, or one that
// udica has made. The policy virt-controller-pods lets no pod have another (decision 618).
func ForContainers(name string) bool {
	switch name {
	case "container_t", "container_init_t", "container_kvm_t", "container_engine_t":
		return true
	}
	return strings.HasSuffix(name, ".process")
}

// Parse reads a context. Other security modules of the kernel have words of their own
// for a process, which are no context.
func Parse(text string) (Context, error) {
	if len(text) > maxLength {
		return Context{}, fmt.Errorf("a text of %d bytes is no SELinux context; one has at most %d", len(text), maxLength)
	}
	parts := strings.SplitN(text, ":", 4)
	if len(parts) != 4 {
		return Context{}, fmt.Errorf("%q is no SELinux context: it must be user:role:type:level", text)
	}
	for _, name := range parts[:3] {
		if !identifier.MatchString(name) {
			return Context{}, fmt.Errorf("%q is no SELinux context: %q is no name of a user, role or type", text, name)
		}
	}
	low, high, isRange := strings.Cut(parts[3], "-")
	if err := checkLevel(low); err != nil {
		return Context{}, fmt.Errorf("%q is no SELinux context: %w", text, err)
	}
	if isRange {
		if err := checkLevel(high); err != nil {
			return Context{}, fmt.Errorf("%q is no SELinux context: %w", text, err)
		}
	}
	return Context{User: parts[0], Role: parts[1], Type: parts[2], Level: parts[3]}, nil
}

func (c Context) String() string {
	return c.User + ":" + c.Role + ":" + c.Type + ":" + c.Level
}

// PodLevel is the level that another pod is given to share the process's files; empty
// for a process with a range of levels, which no categories keep from any file.
func (c Context) PodLevel() string {
	if strings.Contains(c.Level, "-") {
		return ""
	}
	return c.Level
}

// checkLevel checks one level: a sensitivity, and categories that are single or ranges.
func checkLevel(level string) error {
	sensitivity, categories, some := strings.Cut(level, ":")
	if _, err := number(sensitivity, 's', maxSensitivity); err != nil {
		return fmt.Errorf("level %q: %w", level, err)
	}
	if !some {
		return nil
	}
	for category := range strings.SplitSeq(categories, ",") {
		first, last, isRange := strings.Cut(category, ".")
		from, err := number(first, 'c', maxCategory)
		if err != nil {
			return fmt.Errorf("level %q: %w", level, err)
		}
		if !isRange {
			continue
		}
		to, err := number(last, 'c', maxCategory)
		if err != nil {
			return fmt.Errorf("level %q: %w", level, err)
		}
		if to < from {
			return fmt.Errorf("level %q: the range %s ends before it begins", level, category)
		}
	}
	return nil
}

// number reads the number after a letter.
func number(text string, letter byte, limit int) (int, error) {
	digits := strings.TrimPrefix(text, string(letter))
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || len(digits) == len(text) || int(n) > limit {
		return 0, fmt.Errorf("%q must be %c and a number from 0 to %d", text, letter, limit)
	}
	return int(n), nil
}

// LauncherOptions are those of a launcher pod; nil where the administrator has named no
// type, for then the container runtime chooses all of its context.
func LauncherOptions(launcherType string) *corev1.SELinuxOptions {
	if launcherType == "" {
		return nil
	}
	return &corev1.SELinuxOptions{Type: launcherType}
}

// ErrUnknown means that the launcher's context is not known yet.
var ErrUnknown = errors.New("virt-handler has not reported the SELinux context of the VMI's launcher yet (status.selinuxContext)")

// AttachmentOptions are those of a VMI's attachment pods. launcher are the options of
// the VMI's launcher pod, reported is its status.selinuxContext, and enabled says that
// the node has SELinux.
//
// Only the level is taken from the report: a volume that is mounted for a pod gets the
// pod's level, and with another than the launcher's, QEMU could not open it. The type
// is what virt-controller has given to the launcher pod itself, so that no report
// brings a pod into another domain.
func AttachmentOptions(launcher *corev1.SELinuxOptions, reported string, enabled bool) (*corev1.SELinuxOptions, error) {
	options := &corev1.SELinuxOptions{}
	if launcher != nil {
		options.Type = launcher.Type
	}
	switch {
	case reported != "" && reported != None:
		context, err := Parse(reported)
		if err != nil {
			return nil, fmt.Errorf("reading status.selinuxContext: %w", err)
		}
		options.Level = context.PodLevel()
	case enabled:
		return nil, ErrUnknown
	}
	if *options == (corev1.SELinuxOptions{}) {
		return nil, nil
	}
	return options, nil
}

// granted is a level as container runtimes give them to pods: two categories, and fewer where
// pods are not told apart. A process with more could use the files of other pods.
var granted = regexp.MustCompile(`^s0(:c[0-9]+(,c[0-9]+)?)?$`)

// TargetOptions are those of the pod that a VMI migrates to. own are those of any launcher pod,
// reported is the VMI's status.selinuxContext.
//
// The target has the level of the pod that the guest is in: that is the label of the files on
// shared volumes, which the guest has open until it arrives. A launcher whose level is no single
// one has no categories that its files could be kept from the target by (decision 351).
func TargetOptions(own *corev1.SELinuxOptions, reported string) (*corev1.SELinuxOptions, error) {
	if reported == "" || reported == None {
		return own, nil
	}
	context, err := Parse(reported)
	if err != nil {
		return nil, fmt.Errorf("reading status.selinuxContext: %w", err)
	}
	level := context.PodLevel()
	switch {
	case level == "":
		return own, nil
	case !granted.MatchString(level):
		return nil, fmt.Errorf("status.selinuxContext has the level %s, which the target pod is not given: container runtimes give s0 with at most two categories", level)
	}
	options := &corev1.SELinuxOptions{Level: level}
	if own != nil {
		options.Type = own.Type
	}
	return options, nil
}
