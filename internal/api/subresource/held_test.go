package subresource

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestVolumesThatASnapshotOrARestoreNeeds(t *testing.T) {
	for by, status := range map[string]v1.VirtualMachineStatus{
		"":                            {},
		"VirtualMachineSnapshot snap": {SnapshotInProgress: new("snap")},
		"VirtualMachineRestore back":  {RestoreInProgress: new("back")},
	} {
		err := HeldDisks(&v1.VirtualMachine{Status: status}, func(sentence string) error { return errors.New(sentence) })
		if (err == nil) != (by == "") || err != nil && !strings.Contains(err.Error(), "by the "+by+":") {
			t.Errorf("%q: %v", by, err)
		}
	}
}

func TestHowLongAFreezeLasts(t *testing.T) {
	for name, c := range map[string]struct {
		asked *metav1.Duration
		want  time.Duration
	}{
		"nothing":        {nil, 5 * time.Minute},
		"0":              {&metav1.Duration{}, 5 * time.Minute},
		"a minute":       {&metav1.Duration{Duration: time.Minute}, time.Minute},
		"an hour":        {&metav1.Duration{Duration: time.Hour}, time.Hour},
		"more":           {&metav1.Duration{Duration: time.Hour + 1}, 0},
		"less than none": {&metav1.Duration{Duration: -1}, 0},
	} {
		got, err := FreezeTimeout(&v1.FreezeUnfreezeTimeout{UnfreezeTimeout: c.asked})
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
