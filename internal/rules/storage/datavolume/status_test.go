package datavolume

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// People read a worker's progress in the condition Running.
func TestProgressIsPutInWords(t *testing.T) {
	for name, test := range map[string]struct {
		said *transfer.Progress
		want string
	}{
		"nothing was said":                    {nil, ""},
		"there is nothing to say":             {&transfer.Progress{}, ""},
		"only what is done now":               {&transfer.Progress{Step: "checking"}, "checking"},
		"a part of a known size":              {&transfer.Progress{Step: "copying", Done: 512, Total: 2048}, "copying, 512 B of 2.0 KiB"},
		"nothing yet of a known size":         {&transfer.Progress{Total: 10}, "0 B of 10 B"},
		"a part of an unknown size":           {&transfer.Progress{Step: "copying", Done: 3}, "copying, 3 B"},
		"a part of an unknown size, no step":  {&transfer.Progress{Done: 3}, "3 B"},
		"the time that is left, and no size":  {&transfer.Progress{Step: "copying", SecondsLeft: 1}, "copying, about 1s left"},
		"all that can be said":                {&transfer.Progress{Step: "copying", Done: 1 << 20, Total: 1 << 30, SecondsLeft: 90}, "copying, 1.0 MiB of 1.0 GiB, about 1m30s left"},
		"a time that is over already":         {&transfer.Progress{Step: "copying", SecondsLeft: -1}, "copying"},
		"a size that makes no sense is none":  {&transfer.Progress{Done: 3, Total: -1}, "3 B"},
		"less than nothing has not been done": {&transfer.Progress{Step: "copying", Done: -3}, "copying"},
	} {
		if got := describe(test.said); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestSizesArePutInWords(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1<<10: "1023.0 KiB", 1 << 20: "1.0 MiB",
		1 << 30: "1.0 GiB", 5 << 40: "5.0 TiB", 1 << 50: "1.0 PiB", 1 << 60: "1.0 EiB", math.MaxInt64: "8.0 EiB",
	} {
		if got := size(bytes); got != want {
			t.Errorf("%d bytes: %q, want %q", bytes, got, want)
		}
	}
}

func TestProgressNeverGoesBack(t *testing.T) {
	for name, test := range map[string]struct {
		before cdiv1.DataVolumeProgress
		said   *transfer.Progress
		want   cdiv1.DataVolumeProgress
	}{
		"nothing was said before or now":     {"", nil, "N/A"},
		"nothing is said now":                {"12.50%", nil, "12.50%"},
		"the size is not known":              {"N/A", &transfer.Progress{Done: 5}, "N/A"},
		"the size is none":                   {"N/A", &transfer.Progress{Done: 5, Total: -10}, "N/A"},
		"it has begun":                       {"N/A", &transfer.Progress{Total: 1000}, "0.00%"},
		"the first word is less than 1 %":    {"N/A", &transfer.Progress{Done: 5, Total: 1000}, "0.50%"},
		"the first word, of no word before":  {"", &transfer.Progress{Done: 5, Total: 1000}, "0.50%"},
		"it goes on":                         {"12.50%", &transfer.Progress{Done: 1, Total: 4}, "25.00%"},
		"it goes on by less than it says":    {"33.33%", &transfer.Progress{Done: 1, Total: 3}, "33.33%"},
		"another worker begins again":        {"12.50%", &transfer.Progress{Done: 1, Total: 10}, "12.50%"},
		"all but nothing is left":            {"12.50%", &transfer.Progress{Done: 1<<40 - 1, Total: 1 << 40}, "99.99%"},
		"all is read, and not yet written":   {"12.50%", &transfer.Progress{Done: 4, Total: 4}, "99.99%"},
		"more was sent than was announced":   {"12.50%", &transfer.Progress{Done: 5, Total: 4}, "99.99%"},
		"less than nothing was sent":         {"N/A", &transfer.Progress{Done: -5, Total: 4}, "N/A"},
		"what was said before is no number":  {"soon", &transfer.Progress{Done: 5, Total: 1000}, "0.50%"},
		"what was said before has a decimal": {"25.0%", &transfer.Progress{Done: 1, Total: 2}, "50.00%"},
	} {
		if got := grown(test.before, test.said); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWhatADataVolumeSaysOfItsFailure(t *testing.T) {
	running := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Message: "no space"}
	other := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeReady, Status: corev1.ConditionFalse, Message: "not ready"}
	for name, test := range map[string]struct {
		conditions []cdiv1.DataVolumeCondition
		want       string
	}{
		"nothing":                  {nil, ""},
		"nothing of its work":      {[]cdiv1.DataVolumeCondition{other}, ""},
		"that it does not work":    {[]cdiv1.DataVolumeCondition{other, {Type: cdiv1.DataVolumeRunning}}, ""},
		"why, and what follows":    {[]cdiv1.DataVolumeCondition{other, running}, ": no space"},
		"why, and nothing besides": {[]cdiv1.DataVolumeCondition{running}, ": no space"},
	} {
		if got := FailureDetail(&cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Conditions: test.conditions}}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
