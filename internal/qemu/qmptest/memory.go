package qmptest

import "encoding/json"

const (
	// MemoryDevice has at most memoryRoom bytes in blocks of memoryBlock.
	MemoryDevice  = "memory0"
	memoryBackend = "ram1"
	memoryRoom    = 128 << 20
	memoryBlock   = 2 << 20
)

// memory is the requested size, and the size that the guest has plugged.
type memory struct {
	Requested int64 `json:"requested"`
	Size      int64 `json:"size"`
}

func (s *Server) queryMemory(*monitor, arguments) (any, error) {
	return []map[string]any{{"type": "virtio-mem", "data": map[string]any{
		"id": MemoryDevice, "requested-size": s.machine.memory.Requested, "size": s.machine.memory.Size,
		"max-size": memoryRoom, "block-size": memoryBlock, "memaddr": 4 << 30, "node": 0, "memdev": "/objects/" + memoryBackend,
	}}}, nil
}

func (s *Server) giveMemory(value json.RawMessage) error {
	var size int64
	if err := json.Unmarshal(value, &size); err != nil {
		return err
	}
	switch {
	case size%memoryBlock != 0:
		return generic("'requested-size' has to be multiples of 'block-size' (%#x)", memoryBlock)
	case size < 0 || size > memoryRoom:
		return generic("'requested-size' cannot exceed the memory backend size(%#x)", memoryRoom)
	}
	s.machine.memory.Requested = size
	return nil
}

// TakeMemory makes the guest plug size bytes of the requested memory.
func (s *Server) TakeMemory(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.memory.Size = size
	s.emit("MEMORY_DEVICE_SIZE_CHANGE", map[string]any{"id": MemoryDevice, "size": size, "qom-path": peripherals + "/" + MemoryDevice})
}

// GivenMemory returns the requested size.
func (s *Server) GivenMemory() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.memory.Requested
}
