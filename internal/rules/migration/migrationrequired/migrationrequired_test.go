package migrationrequired

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// says is a condition that has had its status for this long.
func says(status corev1.ConditionStatus, since time.Duration) *v1.VirtualMachineInstanceCondition {
	return &v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceMigrationRequired, Status: status, LastTransitionTime: metav1.NewTime(noon.Add(-since)),
	}
}

func TestWhetherAMigrationIsRequired(t *testing.T) {
	const (
		no, yes = corev1.ConditionFalse, corev1.ConditionTrue
		none    = corev1.ConditionStatus("")
	)
	nic := Need{What: "interface blue is to be plugged"}
	sriov := Need{What: "interface fast is to be plugged", AtOnce: true}
	futile := Need{What: "interface red is to be plugged", Futile: "the pod was made with it"}
	for name, test := range map[string]struct {
		needs     []Need
		current   *v1.VirtualMachineInstanceCondition
		immovable error
		stays     bool
		want      corev1.ConditionStatus
		says      string
		after     time.Duration
	}{
		"nothing is needed":                     {},
		"nothing is needed any more":            {current: says(no, 3*time.Second)},
		"nothing is needed any more, after all": {current: says(yes, time.Second)},
		"a need":                                {needs: []Need{nic}, want: no, says: nic.What, after: 11 * time.Second},
		"after a second":                        {needs: []Need{nic}, current: says(no, time.Second), want: no, says: nic.What, after: 10 * time.Second},
		"after ten seconds":                     {needs: []Need{nic}, current: says(no, 10*time.Second), want: no, says: nic.What, after: time.Second},
		"after nearly eleven":                   {needs: []Need{nic}, current: says(no, 11*time.Second-1), want: no, says: nic.What, after: 1},
		"after more than ten seconds":           {needs: []Need{nic}, current: says(no, 11*time.Second), want: yes, says: nic.What},
		"long after":                            {needs: []Need{nic}, current: says(no, time.Hour), want: yes, says: nic.What},
		"it was True a moment ago":              {needs: []Need{nic}, current: says(yes, 0), want: yes, says: nic.What},
		"another need joins it late": {needs: []Need{nic, {What: "2 vCPUs"}}, current: says(no, 9*time.Second), want: no,
			says: nic.What + "; 2 vCPUs", after: 2 * time.Second},
		"nobody makes the migration":             {needs: []Need{sriov}, stays: true, want: yes, says: sriov.What + "; " + manual},
		"nobody will make it if one is required": {needs: []Need{nic}, stays: true, want: no, says: nic.What, after: 11 * time.Second},
		"nobody could make it":                   {needs: []Need{sriov}, stays: true, immovable: errors.New("no"), want: yes, says: sriov.What + "; the guest cannot be migrated: no"},
		"nothing but a migration brings it":      {needs: []Need{sriov}, want: yes, says: sriov.What},
		"or one of them":                         {needs: []Need{nic, sriov}, current: says(no, time.Second), want: yes, says: nic.What + "; " + sriov.What},
		"no migration brings it": {needs: []Need{futile}, current: says(no, time.Hour), want: no,
			says: "interface red is to be plugged, which no migration brings: the pod was made with it"},
		"no migration has brought it": {needs: []Need{futile}, current: says(yes, 0), want: no,
			says: "interface red is to be plugged, which no migration brings: the pod was made with it"},
		"one that a migration brings beside it": {needs: []Need{futile, nic}, current: says(no, 11*time.Second), want: yes,
			says: "interface red is to be plugged, which no migration brings: the pod was made with it; " + nic.What},
		"one that is futile though nothing else could bring it": {needs: []Need{{What: "x", AtOnce: true, Futile: "y"}, nic}, want: no,
			says: "x, which no migration brings: y; " + nic.What, after: 11 * time.Second},
		"the guest can't migrate": {needs: []Need{nic}, current: says(no, time.Minute), immovable: errors.New("PVC a is not shared"), want: yes,
			says: nic.What + "; the guest cannot be migrated: PVC a is not shared"},
		"the guest can't migrate, and nothing is needed": {immovable: errors.New("PVC a is not shared")},
	} {
		t.Run(name, func(t *testing.T) {
			c, after := Decide(test.needs, test.current, Guest{test.immovable, test.stays}, noon)
			if after != test.after {
				t.Errorf("it looks again after %s, want %s", after, test.after)
			}
			if c == nil {
				if test.want != none {
					t.Errorf("there is no condition, want %s", test.want)
				}
				return
			}
			reason := map[corev1.ConditionStatus]string{no: "AutoMigrationPending", yes: "AutoMigrationDueToLiveUpdate"}[test.want]
			if c.Type != v1.VirtualMachineInstanceMigrationRequired || c.Status != test.want || c.Reason != reason || c.Message != test.says {
				t.Errorf("it says %s %s: %s: %s\nwant %s %s: %s", c.Type, c.Status, c.Reason, c.Message, test.want, reason, test.says)
			}
		})
	}
}

func TestTheMessageIsBounded(t *testing.T) {
	whole := strings.Repeat("x", 1024)
	if c, _ := Decide([]Need{{What: whole}}, nil, Guest{}, noon); c.Message != whole {
		t.Errorf("1024 bytes are cut to %d", len(c.Message))
	}
	for _, what := range []string{whole + "y", strings.Repeat("ü", 600), "x" + strings.Repeat("ü", 600)} {
		c, _ := Decide([]Need{{What: what}}, nil, Guest{}, noon)
		if len(c.Message) > 1024 || len(c.Message) < 1020 || !utf8.ValidString(c.Message) || !strings.HasSuffix(c.Message, " …") {
			t.Errorf("it says %d bytes: %q", len(c.Message), c.Message)
		}
	}
}
