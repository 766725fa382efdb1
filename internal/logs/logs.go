// Package logs is how components log: it installs the format that --log-format asks for, and makes the loggers of lines
// about a VM or a VMI. It is the only way to such a logger, so that every such line has the namespace, the name and the
// UID. It must not know a component. virt-launcher and the import workers write the same form by package logline alone.
package logs

import (
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"drydock.dev/drydock/internal/contracts/logline"
)

// Install makes all of the process's logging use the format: that of Drydock, controller-runtime and client-go, and of
// the standard library. klog's verbosity is the level of both formats.
func Install(format logline.Format) {
	if format == logline.JSON {
		install(newJSON(os.Stderr))
		return
	}
	ctrl.SetLogger(klog.NewKlogr())
}

func install(log logr.Logger) {
	klog.SetLoggerWithOptions(log, klog.ContextualLogger(true))
	slog.SetDefault(slog.New(logr.ToSlogHandler(log)))
	ctrl.SetLogger(log)
}

func newJSON(w io.Writer) logr.Logger {
	return logr.New(&sink{handler: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

// VMI returns a logger of lines about a VMI.
func VMI(log logr.Logger, vmi metav1.Object) logr.Logger {
	return log.WithValues(logline.VMI, of(vmi))
}

// VM returns a logger of lines about a VM.
func VM(log logr.Logger, vm metav1.Object) logr.Logger { return log.WithValues(logline.VM, of(vm)) }

// Machine is VM for a VM, and VMI for any other object.
func Machine(log logr.Logger, object metav1.Object) logr.Logger {
	if _, is := object.(*v1.VirtualMachine); is {
		return VM(log, object)
	}
	return VMI(log, object)
}

// VMINamed is VMI for code that has no object.
func VMINamed(log logr.Logger, namespace, name string, uid types.UID) logr.Logger {
	return log.WithValues(logline.VMI, logline.Object{Namespace: namespace, Name: name, UID: string(uid)})
}

// Found is VMI or VM, by key, for code that would have to look the object up: find is called once for each line that is
// written, so it must be cheap and must not log.
func Found(log logr.Logger, key string, find func() logline.Object) logr.Logger {
	return log.WithValues(key, found(find))
}

func of(object metav1.Object) logline.Object {
	return logline.Object{Namespace: object.GetNamespace(), Name: object.GetName(), UID: string(object.GetUID())}
}

type found func() logline.Object

// String is for text.
func (f found) String() string { return f().String() }

// MarshalLog is for JSON.
func (f found) MarshalLog() any { return f() }
