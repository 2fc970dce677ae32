package exchange

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"
)

// GroupPartitions of every topic that groups read; two Members share them.
const GroupPartitions = 4

var Members = []string{"a", "b"}

// Hall is what the members of a group have in common: who owns what, and how much is left to read.
type Hall struct {
	Bootstrap, Topic, Group, Assignor string
	// Done is closed when everything was read.
	Done chan struct{}

	mutex sync.Mutex
	left  int
	ready bool
	owned map[string]map[int32]bool
}

// NewHall reads the program's arguments.
func NewHall() *Hall {
	count, err := strconv.Atoi(os.Args[5])
	Must(err)
	owned := map[string]map[int32]bool{}
	for _, member := range Members {
		owned[member] = map[int32]bool{}
	}
	return &Hall{
		Bootstrap: os.Args[1], Topic: os.Args[2], Group: os.Args[3], Assignor: os.Args[4],
		Done: make(chan struct{}), left: count, owned: owned,
	}
}

// Assigned says that a member got partitions; once both have some and nothing is left, all is ready.
func (h *Hall) Assigned(member string, partitions []int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, partition := range partitions {
		h.owned[member][partition] = true
	}
	a, b := len(h.owned["a"]), len(h.owned["b"])
	if !h.ready && a > 0 && b > 0 && a+b == GroupPartitions {
		h.ready = true
		print(map[string]any{"ready": true})
	}
}

// GivenUp says that a member owns partitions no more.
func (h *Hall) GivenUp(member string, partitions []int32) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, partition := range partitions {
		delete(h.owned[member], partition)
	}
}

// Read says that a member was given a record.
func (h *Hall) Read(member string, partition int32, offset int64, value []byte) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	print(map[string]any{"member": member, "partition": partition, "offset": offset, "value": string(value)})
	if h.left--; h.left == 0 {
		close(h.Done)
	}
}

func print(line map[string]any) { Must(json.NewEncoder(os.Stdout).Encode(line)) }
