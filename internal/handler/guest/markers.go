package guest

import (
	"context"
	"errors"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

type object struct {
	Name string `json:"name"`
}

func listObjects(list *[]object) qmp.Command {
	return qmp.Command{Name: "qom-list", Args: map[string]any{"path": "/objects"}, Result: list}
}

func names(list []object) map[string]bool {
	set := map[string]bool{}
	for _, o := range list {
		set[o.Name] = true
	}
	return set
}

// Markers are the objects in which a QEMU stores virt-handler's state.
type Markers struct{ monitor *qmp.Client }

// List returns the names of all objects.
func (m Markers) List(ctx context.Context) (map[string]bool, error) {
	var list []object
	err := m.monitor.ExecuteAll(ctx, listObjects(&list))
	return names(list), err
}

// Add adds a marker, if it does not exist.
func (m Markers) Add(ctx context.Context, marker string) error {
	objects, err := m.List(ctx)
	if err != nil || objects[marker] {
		return err
	}
	return m.monitor.Execute(ctx, "object-add", map[string]any{"qom-type": machine.MarkerType, "id": marker}, nil)
}

// Remove removes a marker. It succeeds if the marker is already gone.
func (m Markers) Remove(ctx context.Context, marker string) error {
	err := m.monitor.Execute(ctx, "object-del", map[string]any{"id": marker}, nil)
	if err == nil {
		return nil
	}
	objects, asking := m.List(ctx)
	if asking != nil || objects[marker] {
		return errors.Join(err, asking)
	}
	return nil
}
