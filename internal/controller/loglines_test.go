package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/logs/logstest"
)

// machines is a cache with a VM, its VMI and a migration of it. Of any other name there is nothing.
type machines struct {
	client.Reader
	read int
}

func (m *machines) Get(_ context.Context, key types.NamespacedName, to client.Object, _ ...client.GetOption) error {
	m.read++
	switch to := to.(type) {
	case *v1.VirtualMachine:
		to.UID = "uid-of-vm"
	case *v1.VirtualMachineInstance:
		to.UID = "uid-of-vmi"
	case *v1.VirtualMachineInstanceMigration:
		to.Namespace, to.UID, to.Spec.VMIName = key.Namespace, "uid-of-migration", "machine"
	}
	if key.Name != "machine" && key.Name != "migration" {
		to.SetUID("")
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func TestTheLinesOfALoopNameItsMachine(t *testing.T) {
	named := map[string]string{}
	for _, l := range loops {
		if l.lines.find == nil {
			continue
		}
		var got []logstest.Line
		cache := &machines{}
		logger := l.lines.logger(logstest.Logger(func(line logstest.Line) { got = append(got, line) }), cache)
		logger(nil).Info("the loop starts")
		name := "machine"
		if l.of == "VirtualMachineInstanceMigrations" {
			name = "migration"
		}
		request := func(name string) *reconcile.Request {
			return &reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
		}
		log := logger(request(name))
		if cache.read != 0 {
			t.Errorf("%s: the cache is read without a line", l.of)
		}
		log.Error(nil, "Reconciler error")
		logger(request("gone")).Info("it is gone")
		if fault := logstest.Fault(got[1], l.lines.key); fault != "" || got[1].Value("controller") != l.lines.controller || got[1].Value("name") != name {
			t.Errorf("%s: %s: %s", l.of, got[1], fault)
		}
		if want := fmt.Sprintf("default/machine/uid-of-%s", l.lines.key); fmt.Sprint(got[1].Value(l.lines.key)) != want {
			t.Errorf("%s: %s, want %s", l.of, got[1], want)
		}
		if l.of != "VirtualMachineInstanceMigrations" && fmt.Sprint(got[2].Value(l.lines.key)) != "default/gone/" {
			t.Errorf("%s: %s", l.of, got[2])
		}
		if fault := subjectFault(got[0]) + subjectFault(got[1]); fault != "" {
			t.Errorf("%s: %s", l.of, fault)
		}
		named[l.lines.controller] = l.of
	}
	if len(named) != 7 {
		t.Errorf("%d loops name machines: %v", len(named), named)
	}
}

// subjectFault returns how a line of virt-controller fails to say which VM or VMI it is about, or "". An object that has
// just been deleted may lack its UID.
func subjectFault(l logstest.Line) string {
	keys := []string{}
	for _, loop := range loops {
		if loop.lines.find != nil && l.Value("controller") == loop.lines.controller && l.Value("name") != nil {
			keys = append(keys, loop.lines.key)
		}
	}
	for _, key := range []string{logline.VMI, logline.VM} {
		if l.Value(key) != nil && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		fault := logstest.Fault(l, key)
		if fault != "" && !strings.HasSuffix(fmt.Sprint(l.Value(key)), "/") {
			return fault
		}
	}
	return ""
}

func TestLinesOfLoopsThatNameNoMachineAreFound(t *testing.T) {
	var faults []string
	log := logstest.Logger(func(l logstest.Line) { faults = append(faults, subjectFault(l)) })
	log.WithValues("controller", "virtualmachineinstance", "name", "x").Info("no VMI")
	log.Info("a text", "vmi", "default/x")
	log.WithValues("controller", "datavolume", "name", "x").Info("another kind's")
	log.WithValues("controller", "virtualmachine").Info("about no VM")
	for i, found := range []bool{true, true, false, false} {
		if (faults[i] != "") != found {
			t.Errorf("line %d: %q", i, faults[i])
		}
	}
}
