package memorydump

import (
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/hotplug"
)

func alive(name string) hotplug.Pod {
	return hotplug.Pod{Name: name, UID: "uid-" + "1", Running: true, Volumes: []hotplug.Volume{{Name: "dump", Claim: "dump"}}}
}

// onNode is a guest whose dump has a phase, with the claim in a pod.
func onNode(phase v1.VolumePhase, wanted bool) OnNode {
	vmi := asked().VMI
	if wanted {
		has(vmi)
	}
	status(phase, "said")(vmi)
	vmi.Status.VolumeStatus[0].HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: "hp-1", AttachPodUID: "uid-1"}
	return OnNode{VMI: vmi, Name: "dump", Pods: []hotplug.Pod{alive("hp-1")}, May: true, QEMU: None, Now: now}
}

func TestDecideOnNode(t *testing.T) {
	const same v1.VolumePhase = "" // stays
	inProgress, completed := v1.MemoryDumpVolumeInProgress, v1.MemoryDumpVolumeCompleted
	failed, detaching, unmounted := v1.MemoryDumpVolumeFailed, v1.HotplugVolumeDetaching, v1.HotplugVolumeUnMounted
	for name, test := range map[string]struct {
		phase  v1.VolumePhase
		wanted bool
		change func(*OnNode)
		action Action
		want   v1.VolumePhase
		says   string
	}{
		"it waits for its claim":                        {v1.VolumePending, true, nil, Rest, same, ""},
		"it is attached":                                {v1.HotplugVolumeAttachedToNode, true, nil, Rest, inProgress, "being dumped to the PVC dump"},
		"attached, and the guest not up":                {v1.HotplugVolumeAttachedToNode, true, func(o *OnNode) { o.May = false }, Rest, same, ""},
		"attached, and the pod is gone":                 {v1.HotplugVolumeAttachedToNode, true, func(o *OnNode) { o.Pods = nil }, Rest, same, ""},
		"nothing is done":                               {inProgress, true, nil, Prepare, inProgress, "said"},
		"nothing is done, no pod":                       {inProgress, true, func(o *OnNode) { o.Pods = nil }, Rest, inProgress, "said"},
		"the guest leaves":                              {inProgress, true, func(o *OnNode) { o.May = false }, Rest, inProgress, "said"},
		"the file is being made":                        {inProgress, true, func(o *OnNode) { o.Work.Busy = true }, Rest, inProgress, "said"},
		"the file is open":                              {inProgress, true, func(o *OnNode) { o.Work.Prepared = true }, Send, inProgress, "said"},
		"QEMU writes":                                   {inProgress, true, func(o *OnNode) { o.Work.Sent, o.QEMU = true, Active }, Rest, inProgress, "said"},
		"QEMU writes for a virt-handler that died":      {inProgress, true, func(o *OnNode) { o.QEMU = Active }, Rest, inProgress, "said"},
		"QEMU has written":                              {inProgress, true, func(o *OnNode) { o.Work.Sent, o.QEMU = true, Completed }, Finish, inProgress, "said"},
		"QEMU has written something, once":              {inProgress, true, func(o *OnNode) { o.QEMU = Completed }, Prepare, inProgress, "said"},
		"QEMU has written while the guest was leaving":  {inProgress, true, func(o *OnNode) { o.Work.Sent, o.QEMU, o.May = true, Completed, false }, Finish, inProgress, "said"},
		"the file is stored":                            {inProgress, true, func(o *OnNode) { o.Work.Stored, o.QEMU = true, Completed }, Rest, completed, "to the file file in the PVC dump"},
		"QEMU has failed":                               {inProgress, true, func(o *OnNode) { o.Work.Sent, o.QEMU, o.Error = true, Failed, "full" }, Clean, inProgress, "said"},
		"the file could not be made":                    {inProgress, true, func(o *OnNode) { o.Work.Failure = "no space" }, Clean, inProgress, "said"},
		"it failed, and QEMU has begun it late":         {inProgress, true, func(o *OnNode) { o.Work.Failure, o.QEMU = "no answer", Active }, Rest, inProgress, "said"},
		"the failure is cleaned":                        {inProgress, true, func(o *OnNode) { o.Work.Failure, o.Work.Cleaned = "no space", true }, Rest, failed, "no space"},
		"completed":                                     {completed, true, nil, Rest, completed, "said"},
		"failed":                                        {failed, true, nil, Rest, failed, "said"},
		"completed, and not wanted":                     {completed, false, nil, Rest, unmounted, ""},
		"failed, and not wanted":                        {failed, false, nil, Rest, unmounted, ""},
		"removed while QEMU writes":                     {inProgress, false, func(o *OnNode) { o.Work.Sent, o.QEMU = true, Active }, Rest, detaching, "when QEMU has finished"},
		"removed while the file is being stored":        {inProgress, false, func(o *OnNode) { o.Work.Sent, o.Work.Busy, o.QEMU = true, true, Completed }, Rest, detaching, ""},
		"removed, QEMU has finished":                    {detaching, false, func(o *OnNode) { o.QEMU = Completed }, Clean, detaching, ""},
		"removed, and cleaned":                          {detaching, false, func(o *OnNode) { o.Work.Cleaned, o.QEMU = true, Completed }, Rest, unmounted, ""},
		"removed, and no pod has the claim":             {inProgress, false, func(o *OnNode) { o.Work.Sent, o.QEMU, o.Pods = true, Completed, nil }, Rest, unmounted, ""},
		"removed, no pod, and QEMU writes":              {inProgress, false, func(o *OnNode) { o.Work.Sent, o.QEMU, o.Pods = true, Active, nil }, Rest, detaching, "when QEMU has finished"},
		"removed before it began":                       {v1.HotplugVolumeAttachedToNode, false, func(o *OnNode) { o.VMI.Status.VolumeStatus[0].MemoryDumpVolume.TargetFileName = "" }, Rest, unmounted, ""},
		"it has left":                                   {unmounted, false, nil, Rest, same, ""},
		"it waits for its claim, and is not wanted now": {v1.VolumePending, false, nil, Rest, same, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := onNode(test.phase, test.wanted)
			if test.change != nil {
				test.change(&o)
			}
			d := DecideOnNode(o)
			if d.Action != test.action || d.Phase != test.want || !strings.Contains(d.Message, test.says) {
				t.Errorf("%q, phase %q, %q; want %q, %q, %q", d.Action, d.Phase, d.Message, test.action, test.want, test.says)
			}
			if d.Action != Rest && d.Action != Send && d.Source.Name != "hp-1" {
				t.Errorf("the claim is taken from %+v", d.Source)
			}
			if d.Phase != same && (d.PodName != "hp-1" || d.PodUID != "uid-1") {
				t.Errorf("the status would name the pod %s %s", d.PodName, d.PodUID)
			}
		})
	}
}

func TestAFileIsNamedBeforeItIsMade(t *testing.T) {
	o := onNode(v1.HotplugVolumeAttachedToNode, true)
	*o.VMI.Status.VolumeStatus[0].MemoryDumpVolume = v1.DomainMemoryDumpInfo{ClaimName: "dump"}
	d := DecideOnNode(o)
	if d.Info.TargetFileName != FileName("web", "dump", now) || !d.Info.StartTimestamp.Time.Equal(now) || d.Info.EndTimestamp != nil {
		t.Errorf("the status gets %+v", d.Info)
	}
}

func TestAnEndHasTheTimeOfTheWork(t *testing.T) {
	o := onNode(v1.MemoryDumpVolumeInProgress, true)
	o.Work = Work{Stored: true, Ended: now}
	for range 2 { // a repeated report is the same
		o.Now = o.Now.Add(time.Minute)
		if d := DecideOnNode(o); !d.Info.EndTimestamp.Time.Equal(now) {
			t.Errorf("it ended at %v", d.Info.EndTimestamp)
		}
	}
}

// The pod of the status is gone: the next recorded one has the claim, and the status gets its name.
func TestAnotherPodTakesOver(t *testing.T) {
	o := onNode(v1.MemoryDumpVolumeInProgress, true)
	next := alive("hp-2")
	next.UID = "uid-2"
	o.Pods = []hotplug.Pod{next}
	if d := DecideOnNode(o); d.Action != Rest {
		t.Errorf("the claim is taken from a pod that is not recorded: %+v", d)
	}
	o.Record.Pods = []hotplug.AttachmentPod{{Name: "hp-2", UID: "uid-2", Volumes: next.Volumes}}
	if d := DecideOnNode(o); d.Action != Prepare || d.Source.UID != "uid-2" || d.PodName != "hp-2" {
		t.Errorf("it is %+v", d)
	}
}
