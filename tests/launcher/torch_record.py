# SPDX-License-Identifier: MIT
# A PyTorch worker whose main() is recorded; rank 1 fails in it.
import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] != "1":
        time.sleep(60)
    raise RuntimeError("rank 1 is out of luck")


main()
