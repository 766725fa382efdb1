// Package selinux holds the rules of SELinux contexts: their syntax, the part of one that a pod may be given, and which
// pods get one. It must not import a client, or read a process's context or a file's label: package nodeselinux does.
package selinux

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The longest context of a container runtime, with a hundred categories, is shorter.
const maxLength = 512

// The limits of distributions' policies.
const (
	maxSensitivity = 15
	maxCategory    = 1023
)

// None is KubeVirt's value for a node without SELinux.
const None = "none"

// Context is the context of a process.
type Context struct {
	User, Role, Type string
	// Level is one (s0:c1,c2) or a range (s0-s0:c0.c1023).
	Level string
}

// identifier is a user, a role or a type. Types of CIL policy modules have dots.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// ValidType reports whether text is a valid type name.
func ValidType(text string) bool { return identifier.MatchString(text) }

// ForContainers reports whether Pod Security allows the type, or udica has generated it. The policy
// virt-controller-pods refuses any other (decision 618).
func ForContainers(name string) bool {
	switch name {
	case "container_t", "container_init_t", "container_kvm_t", "container_engine_t":
		return true
	}
	return strings.HasSuffix(name, ".process")
}

// Parse parses a context. Labels of the kernel's other security modules are an error.
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

// PodLevel returns the level with which another pod shares the process's files; "" for a range, which no categories
// keep from any file.
func (c Context) PodLevel() string {
	if strings.Contains(c.Level, "-") {
		return ""
	}
	return c.Level
}

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

func number(text string, letter byte, limit int) (int, error) {
	digits := strings.TrimPrefix(text, string(letter))
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || len(digits) == len(text) || int(n) > limit {
		return 0, fmt.Errorf("%q must be %c and a number from 0 to %d", text, letter, limit)
	}
	return int(n), nil
}

// LauncherOptions returns the options of a launcher pod, nil if the administrator has set no type: then the container
// runtime chooses the whole context.
func LauncherOptions(launcherType string) *corev1.SELinuxOptions {
	if launcherType == "" {
		return nil
	}
	return &corev1.SELinuxOptions{Type: launcherType}
}

// ErrUnknown means that the launcher's context is not known yet.
var ErrUnknown = errors.New("virt-handler has not reported the SELinux context of the VMI's launcher yet (status.selinuxContext)")

// AttachmentOptions returns the options of a VMI's attachment pods. launcher are those of its launcher pod, reported is
// its status.selinuxContext, and enabled means that the node has SELinux.
//
// Only the level comes from the report: a volume gets the level of the pod for which it is mounted, and QEMU can open
// it only with the launcher's. The type is the launcher pod's, so that no report brings a pod into another domain.
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

// Container runtimes give a pod two categories, or fewer if pods are not separated. A process with more could use the
// files of other pods.
var granted = regexp.MustCompile(`^s0(:c[0-9]+(,c[0-9]+)?)?$`)

// TargetOptions returns the options of the target pod of a migration. own are those of any launcher pod, reported is
// the VMI's status.selinuxContext.
//
// The target has the level of the guest's current pod, which labels the files on shared volumes: the guest has them
// open until it arrives. A launcher with a range of levels has no categories to keep its files from the target
// (decision 351).
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
