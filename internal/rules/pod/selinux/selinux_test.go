package selinux

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const launcher = "system_u:system_r:container_t:s0:c12,c34"

// longest has the maximal length of a context, 512 bytes.
var longest = "system_u:system_r:container_t:s0:" + strings.Repeat("c1,", 159) + "c1"

func TestParse(t *testing.T) {
	for text, level := range map[string]string{
		launcher:                                                               "s0:c12,c34",
		"system_u:system_r:spc_t:s0":                                           "s0",
		"a_u:b_r:virt_launcher.process:s0":                                     "s0",
		"system_u:system_r:container_t:s15:c0.c3,c1023":                        "s15:c0.c3,c1023",
		"unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023":                "",
		"system_u:system_r:container_t:s0:c1,c2-s0:c1,c2":                      "",
		"system_u:object_r:container_file_t:s0:c12,c34,c56,c78.c90":            "s0:c12,c34,c56,c78.c90",
		"system_u:system_r:container_t:s0:" + strings.Repeat("c1,", 99) + "c1": "s0:" + strings.Repeat("c1,", 99) + "c1",
		"system_u:system_r:container_t:s0:c7.c7":                               "s0:c7.c7",
		longest:                                                                "s0:" + strings.Repeat("c1,", 159) + "c1",
	} {
		context, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if context.String() != text || context.PodLevel() != level {
			t.Errorf("%s: read as %s, level for a pod %q, want %q", text, context, context.PodLevel(), level)
		}
	}
}

func TestWhatIsNoContextIsRefused(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":                        "",
		"what is said before a policy":   "kernel",
		"AppArmor's word":                "unconfined",
		"AppArmor's profile":             "cri-containerd.apparmor.d (enforce)",
		"AppArmor's namespaced profile":  ":k8s://a:b:s0 (enforce)",
		"no level":                       "system_u:system_r:container_t",
		"an empty level":                 "system_u:system_r:container_t:",
		"no type":                        "system_u:system_r::s0",
		"a type with a space":            "system_u:system_r:spc_t x:s0",
		"a newline":                      "system_u:system_r:spc_t:s0\n",
		"a zero byte":                    "system_u:system_r:spc_t:s0\x00",
		"a level of letters":             "system_u:system_r:spc_t:high",
		"a sensitivity that is too high": "system_u:system_r:spc_t:s16",
		"a signed sensitivity":           "system_u:system_r:spc_t:s+1",
		"a category that is too high":    "system_u:system_r:spc_t:s0:c1024",
		"a huge category":                "system_u:system_r:spc_t:s0:c99999999999999999999",
		"an empty category":              "system_u:system_r:spc_t:s0:c1,",
		"a range backwards":              "system_u:system_r:spc_t:s0:c9.c1",
		"a half range of levels":         "system_u:system_r:spc_t:s0-",
		"a fifth part":                   "system_u:system_r:spc_t:s0:c1:c2",
		"a byte too many":                longest + "0",
		"a sensitivity without an s":     "system_u:system_r:spc_t:0",
		"a category without a c":         "system_u:system_r:spc_t:s0:5",
		"a range to no category":         "system_u:system_r:spc_t:s0:c1.5",
		"a long text":                    "system_u:system_r:spc_t:s0:" + strings.Repeat("c1,", 300) + "c1",
	} {
		if context, err := Parse(text); err == nil {
			t.Errorf("%s (%q) was read as %+v", what, text, context)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(launcher)
	f.Add("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023")
	f.Add("unconfined")
	f.Fuzz(func(t *testing.T, text string) {
		context, err := Parse(text)
		if err != nil {
			return
		}
		if context.String() != text || len(text) > maxLength || strings.ContainsAny(text, " \n\x00/\"") {
			t.Errorf("%q was read as %+v", text, context)
		}
	})
}

func TestTypesOfLaunchers(t *testing.T) {
	if got := LauncherOptions(""); got != nil {
		t.Errorf("without a type the pod has %v", got)
	}
	if diff := cmp.Diff(&corev1.SELinuxOptions{Type: "container_kvm_t"}, LauncherOptions("container_kvm_t")); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"", "a:b", "a b", "container_t\n", "0", strings.Repeat("a", 200)} {
		if ValidType(wrong) {
			t.Errorf("%q passes for a type", wrong)
		}
	}
}

func TestWhatAttachmentPodsAreGiven(t *testing.T) {
	kvm := &corev1.SELinuxOptions{Type: "container_kvm_t"}
	for name, tc := range map[string]struct {
		launcher *corev1.SELinuxOptions
		reported string
		enabled  bool
		want     *corev1.SELinuxOptions
		unknown  bool
		refused  bool
	}{
		"a node without SELinux":                       {},
		"a node without SELinux, and KubeVirt's word":  {reported: None},
		"a node without SELinux, and a type":           {launcher: kvm, want: kvm},
		"the launcher's level":                         {reported: launcher, enabled: true, want: &corev1.SELinuxOptions{Level: "s0:c12,c34"}},
		"its type, too":                                {launcher: kvm, reported: launcher, enabled: true, want: &corev1.SELinuxOptions{Type: "container_kvm_t", Level: "s0:c12,c34"}},
		"a level, and the node's label is not there":   {reported: launcher, want: &corev1.SELinuxOptions{Level: "s0:c12,c34"}},
		"a launcher with all categories":               {reported: "system_u:system_r:container_runtime_t:s0-s0:c0.c1023", enabled: true},
		"the report is not there yet":                  {enabled: true, unknown: true},
		"KubeVirt's word on a node with SELinux":       {reported: None, enabled: true, unknown: true},
		"a type in the report is not the pod's":        {reported: "system_u:system_r:spc_t:s0", enabled: true, want: &corev1.SELinuxOptions{Level: "s0"}},
		"user, role and level of a launcher's options": {launcher: &corev1.SELinuxOptions{User: "u", Role: "r", Level: "s0:c1"}},
		"a report that is no context":                  {reported: "spc_t", enabled: true, refused: true},
		"a report with more than a context":            {reported: launcher + "\nlevel: s0", enabled: true, refused: true},
	} {
		got, err := AttachmentOptions(tc.launcher, tc.reported, tc.enabled)
		if errors.Is(err, ErrUnknown) != tc.unknown || (err != nil) != (tc.unknown || tc.refused) {
			t.Errorf("%s: error %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatTheTargetOfAMigrationIsGiven(t *testing.T) {
	kvm := &corev1.SELinuxOptions{Type: "container_kvm_t"}
	at := func(level string) string { return "system_u:system_r:container_t:" + level }
	for name, tc := range map[string]struct {
		own      *corev1.SELinuxOptions
		reported string
		want     *corev1.SELinuxOptions
		refused  string
	}{
		"a node without SELinux":                      {},
		"a node without SELinux, and KubeVirt's word": {own: kvm, reported: None, want: kvm},
		"the source's level":                          {reported: launcher, want: &corev1.SELinuxOptions{Level: "s0:c12,c34"}},
		"the type of all launchers, too":              {own: kvm, reported: launcher, want: &corev1.SELinuxOptions{Type: "container_kvm_t", Level: "s0:c12,c34"}},
		"no more than these of all launchers": {own: &corev1.SELinuxOptions{User: "u", Role: "r", Level: "s0:c1"}, reported: launcher,
			want: &corev1.SELinuxOptions{Level: "s0:c12,c34"}},
		"a type in the report is not the pod's": {reported: "system_u:system_r:spc_t:s0", want: &corev1.SELinuxOptions{Level: "s0"}},
		"one category":                          {reported: at("s0:c1023"), want: &corev1.SELinuxOptions{Level: "s0:c1023"}},
		"a launcher with a range of levels":     {own: kvm, reported: at("s0-s0:c0.c1023"), want: kvm},
		"all categories":                        {reported: at("s0:c0.c1023"), refused: "s0:c0.c1023"},
		"three categories":                      {reported: at("s0:c1,c2,c3"), refused: "at most two categories"},
		"a range of categories beside another":  {reported: at("s0:c1,c2.c9"), refused: "at most two categories"},
		"a sensitivity that no runtime gives":   {reported: at("s15:c1,c2"), refused: "s15:c1,c2"},
		"a report that is no context":           {own: kvm, reported: "spc_t", refused: "reading status.selinuxContext"},
		"a report with more than a context":     {reported: launcher + "\nlevel: s0", refused: "reading status.selinuxContext"},
	} {
		got, err := TargetOptions(tc.own, tc.reported)
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: error %v, want %q in it", name, err, tc.refused)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
