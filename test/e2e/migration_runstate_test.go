//go:build e2e

package e2e

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/runstate"
)

func withRunStates(vm *v1.VirtualMachine) *v1.VirtualMachine {
	meta := &vm.Spec.Template.ObjectMeta
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	meta.Labels[machine.DebugLogsLabel] = "true"
	return vm
}

// launcherLogs keeps the logs of launcher pods open, to read them after their pods are gone. Only one goroutine may use
// it at a time.
type launcherLogs struct {
	files map[types.UID]launcherLog
}

type launcherLog struct {
	vmi, pod string
	file     *os.File
}

// The kubelet writes the log on the node, whose folders are on this machine.
func (l *launcherLogs) open(t *testing.T, pods []corev1.Pod) {
	for i := range pods {
		pod := &pods[i]
		if _, known := l.files[pod.UID]; known || pod.Spec.NodeName == "" {
			continue
		}
		file, err := os.Open(filepath.Join(os.Getenv("DRYDOCK_DIR"), "nodes", pod.Spec.NodeName, "log", "pods",
			pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), "compute", "0.log"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Errorf("opening the log of pod %s: %v", pod.Name, err)
			continue
		}
		if l.files == nil {
			l.files = map[types.UID]launcherLog{}
		}
		l.files[pod.UID] = launcherLog{vmi: pod.Labels[v1.CreatedByLabel], pod: pod.Name, file: file}
	}
}

// Of a VMI's QEMUs, at most one may run at a time.
func (l *launcherLogs) check(t *testing.T) {
	vmis, times := map[string][]runstate.Span{}, 0
	for _, log := range l.files {
		text, err := io.ReadAll(log.file)
		_ = log.file.Close()
		if err != nil {
			t.Errorf("reading the log of pod %s: %v", log.pod, err)
			continue
		}
		spans, err := runstate.Spans(log.pod, string(text))
		if err != nil {
			t.Error(err)
		}
		vmis[log.vmi] = append(vmis[log.vmi], spans...)
		times += len(spans)
	}
	for vmi, spans := range vmis {
		if err := runstate.OneAtATime(spans); err != nil {
			t.Errorf("VMI %s: %v", vmi, err)
		}
	}
	if times == 0 {
		t.Errorf("none of %d QEMUs has said that it runs", len(l.files))
	}
	t.Logf("figure migration: %d QEMUs of %d VMIs ran %d times, one of a VMI at a time", len(l.files), len(vmis), times)
}
