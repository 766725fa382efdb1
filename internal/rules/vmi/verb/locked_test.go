package verb

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

func TestALockedVMIsNotStarted(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros"}, Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)}}
	if _, err := Start(vm, nil, v1.StartOptions{}); err != nil {
		t.Errorf("a VM that is not locked: %v", err)
	}
	lock.Take(vm, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix"}}, time.Now())
	plan, err := Start(vm, nil, v1.StartOptions{})
	if err == nil || !strings.Contains(err.Error(), "Failed to start vm-cirros as it is in maintenance mode") || plan.RunStrategy != "" {
		t.Errorf("a VM that is locked: %v, %+v", err, plan)
	}
}
